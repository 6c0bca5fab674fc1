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

# The first minutes of a machine are those of its own updates: whoever holds apt's lock is waited for.
bw_apt_get() {
  bw_as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

bw_apt_install() { # PACKAGE...
  command -v apt-get >/dev/null || return 127
  local log
  log=$(mktemp)
  # A machine fresh from an image has no package lists at all, or old ones.
  if bw_apt_get install -y -qq --no-install-recommends "$@" >"$log" 2>&1 ||
    { bw_apt_get update -qq >>"$log" 2>&1 &&
      bw_apt_get install -y -qq --no-install-recommends "$@" >>"$log" 2>&1; }; then
    rm -f "$log"
  else
    tail -n 5 "$log" >&2
    rm -f "$log"
    return 1
  fi
}

bw_install_programs() { # PROGRAM:PACKAGE...
  # Installs the packages of programs that are missing. Their services are not started, now or at
  # the next boot. A second caller waits, and then finds everything installed.
  # Debian's PATH of users leaves out where some are.
  local PATH=$PATH:/usr/sbin:/sbin missing policy=/usr/sbin/policy-rc.d lock each
  [[ $(bw_missing "$@") ]] || return 0
  mkdir -p "$bw_cache"
  exec {lock}>"$bw_cache/packages.lock"
  flock "$lock"
  mapfile -t missing < <(bw_missing "$@")
  ((${#missing[@]})) || return 0
  bw_say "installing Debian packages: ${missing[*]}"
  # Packages ask this program whether they may start a service. One that is there may say yes, and is
  # put aside meanwhile.
  # shellcheck disable=SC2064
  trap "bw_as_root rm -f $policy; [[ ! -e $policy.bw ]] || bw_as_root mv $policy.bw $policy" EXIT
  [[ ! -e $policy ]] || bw_as_root mv "$policy" "$policy.bw"
  printf '#!/bin/sh\nexit 101\n' | bw_as_root tee "$policy" >/dev/null
  bw_as_root chmod 755 "$policy"
  bw_apt_install "${missing[@]}" ||
    bw_die "these Debian packages are missing and could not be installed: ${missing[*]}" \
      "sudo apt-get update && sudo apt-get install ${missing[*]}"
  for each in "${missing[@]}"; do
    [[ $each == *-client ]] || bw_as_root update-rc.d "${each/openssh-server/ssh}" disable >/dev/null 2>&1 || true
  done
}

bw_missing() { # PROGRAM:PACKAGE...: prints the packages
  local each
  for each; do command -v "${each%:*}" >/dev/null || printf '%s\n' "${each#*:}"; done | sort -u
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

# As bw_find_python; as root it is installed, as what else a first use needs is.
bw_need_python() {
  bw_find_python && return 0
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    bw_say 'installing the Debian packages python3 and python3-venv'
    bw_apt_install python3 python3-venv && bw_find_python && return 0
  fi
  bw_die 'no Python 3.11 or newer was found' 'sudo apt-get install python3 python3-venv'
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

bw_make_venv() { # NAME EXTRA: with what the package requires, and its extra: empty or like [dev]
  local python log
  mkdir -p "$bw_cache" || bw_die "cannot write to $bw_cache" 'set BW_CACHE to a folder of yours'
  # Whoever comes second waits here, and then finds it complete.
  exec {bw_lock}>"$bw_venv.lock"
  flock "$bw_lock"
  ! bw_have_venv || return 0
  python=$(bw_need_python) || exit
  bw_need_venv "$python"
  bw_say "first use: making a Python environment in $bw_venv (once)"
  log=$bw_venv.log
  rm -rf "$bw_venv"
  if ! bw_fill_venv "$python" "$2" >"$log" 2>&1 </dev/null; then
    bw_die "the Python environment could not be made: $(bw_pip_said "$log")" \
      "the whole log is $log; the same command starts over"
  fi
  bw_drop_old_venvs "$1"
  printf '%s\n' "$bw_root" >"$bw_venv/complete"
  exec {bw_lock}>&-
  rm -f "$log"
}

# Where pip reached nobody, its last word is that there is no such package.
bw_pip_said() { # LOG
  local kept
  kept=$(grep -o "connection broken by '.*" "$1" | tail -n 1) ||
    kept=$(grep -i '^error' "$1" | tail -n 1) || kept=$(tail -n 1 "$1")
  printf '%s\n' "${kept#ERROR: }"
}

# The checkout is not installed but found, by a line of a .pth file: nothing is built, and its user
# need not be able to write to it. Settings of the user's own pip about where to install do not count.
bw_fill_venv() { # PYTHON EXTRA
  local required site
  "$1" -m venv "$bw_venv" || return
  required=$("$bw_venv/bin/python" -c 'import sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
name = sys.argv[2].strip("[]")
extra = project["optional-dependencies"][name] if name else []
print(*project["dependencies"], *extra, sep="\n")' "$bw_root/pyproject.toml" "$2") || return
  mapfile -t required <<<"$required"
  env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX "$bw_venv/bin/python" -m pip install --quiet \
    --no-input --disable-pip-version-check "${required[@]}" || return
  site=$("$bw_venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])') || return
  printf '%s\n' "$bw_root" >"$site/beads-workers.pth" || return
  printf '#!%s\nfrom beads_workers.cli.app import main\n\nmain()\n' "$bw_venv/bin/python" \
    >"$bw_venv/bin/beads-workers" || return
  chmod +x "$bw_venv/bin/beads-workers"
}

# What earlier states of this checkout made, unless something still runs from it.
bw_drop_old_venvs() { # NAME
  local complete old
  for complete in "$bw_cache/$1"-????????????????/complete; do
    old=${complete%/complete}
    [[ -e $complete && $old != "$bw_venv" && $(<"$complete") == "$bw_root" ]] || continue
    grep -qsaF "$old/" /proc/[0-9]*/cmdline || rm -rf "$old" "$old.lock" "$old.log"
  done
}
