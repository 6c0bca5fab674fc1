# Sourced by bin/beads-workers and scripts/*: a virtual environment per checkout, outside of it.
#
# An environment is named after its checkout and its pyproject.toml: when either differs another
# one is made, and two checkouts never share one. The file `complete` in it is written last.

bw_root=$(cd -P "${BASH_SOURCE[0]%/*}/.." && pwd)

bw_say() { printf 'beads-workers: %s\n' "$*" >&2; }

bw_die() { # MESSAGE [HINT]
  printf 'error: %s\n' "$1" >&2
  [[ -z ${2-} ]] || printf 'hint: %s\n' "$2" >&2
  exit 1
}

# Code is run from there: never from a folder that anybody can make, as one below /tmp.
bw_home=${HOME:-$(getent passwd "$EUID" | cut -d: -f6)}
[[ -n ${BW_CACHE-} || -d $bw_home ]] ||
  bw_die "there is no home folder ${bw_home:-of this user}" 'set BW_CACHE to a folder of yours'
bw_cache=${BW_CACHE:-$bw_home/.cache/beads-workers}

# The root command prefix: nothing for root, sudo where it asks no password (or can ask for one).
bw_as_root() {
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    sudo "$@"
  else
    return 126
  fi
}

bw_apt_install() { # PACKAGE...
  command -v apt-get >/dev/null || return 127
  local log
  log=$(mktemp)
  # A machine fresh from an image has no package lists at all, or old ones.
  if bw_as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@" >"$log" 2>&1 </dev/null ||
    { bw_as_root apt-get update -qq >>"$log" 2>&1 </dev/null &&
      bw_as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >>"$log" 2>&1 </dev/null; }; then
    rm -f "$log"
  else
    tail -n 5 "$log" >&2
    rm -f "$log"
    return 1
  fi
}

# Prints the path of a Python that is new enough; a pyenv shim is followed to the real one.
bw_find_python() {
  local candidate
  for candidate in "${BW_PYTHON:-python3}" python3.11 python3.12 python3.13 python3.14 \
    /usr/bin/python3; do
    "$candidate" -c 'import sys
if sys.version_info < (3, 11): sys.exit(1)
print(sys.executable)' 2>/dev/null && return 0
  done
  return 1
}

# Debian divides venv from Python: ensurepip is missing until python3-venv is installed.
bw_need_venv() { # PYTHON
  local package=python3-venv version
  "$1" -c 'import venv; from ensurepip import bootstrap' 2>/dev/null && return 0
  version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  [[ $(/usr/bin/python3 -V 2>/dev/null) == "Python $version".* ]] || package=python$version-venv
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    bw_say "installing the Debian package $package"
    bw_apt_install "$package" && return 0
  fi
  bw_die "$1 cannot make virtual environments (its venv module is not installed)" \
    "sudo apt-get install $package"
}

bw_venv_path() { # NAME: sets bw_venv, without starting a program but one
  local hash
  hash=$(sha256sum <<<"$bw_root $(<"$bw_root/pyproject.toml")")
  bw_venv=$bw_cache/$1-${hash:0:16}
}

# For whatever starts Python a thousand times: everything is compiled once, also where the caller's
# environment says that no bytecode is to be written beside the sources. It lies in the cache.
bw_keep_bytecode() {
  unset PYTHONDONTWRITEBYTECODE
  export PYTHONPYCACHEPREFIX=$bw_cache/bytecode
}

# Complete, and the Python that it was made with has not been removed meanwhile.
bw_have_venv() { [[ -e $bw_venv/complete && -x $bw_venv/bin/python ]]; }

bw_make_venv() { # NAME EXTRAS: EXTRAS is empty or like [dev]
  local python log
  mkdir -p "$bw_cache" || bw_die "cannot write to $bw_cache" 'set BW_CACHE to a folder of yours'
  # Whoever comes second waits here, and then finds it complete.
  exec {bw_lock}>"$bw_venv.lock"
  flock "$bw_lock"
  ! bw_have_venv || return 0
  python=$(bw_find_python) ||
    bw_die 'no Python 3.11 or newer was found' 'sudo apt-get install python3 python3-venv'
  bw_need_venv "$python"
  bw_say "first use: making a Python environment in $bw_venv (once, under a minute)"
  log=$bw_venv.log
  rm -rf "$bw_venv"
  # A plain path entry, not an import hook: the hook would slow every start down.
  if ! { "$python" -m venv "$bw_venv" &&
    "$bw_venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check \
      --config-settings editable_mode=compat --editable "$bw_root$2"; } >"$log" 2>&1 </dev/null; then
    tail -n 5 "$log" >&2
    bw_die "the Python environment could not be made (whole log: $log)" \
      'is the network reachable? run the same command again, it starts over'
  fi
  printf '%s\n' "$bw_root" >"$bw_venv/complete"
  exec {bw_lock}>&-
  rm -f "$log"
}
