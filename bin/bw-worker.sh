#!/usr/bin/env bash
# A complete worker of protocol version 1 (docs/PROTOCOL.md) in Bash, with socat and jq:
#   ORCHESTRATOR_PID=PID bw-worker.sh COMMAND [ARG...]      (or BW_SOCKET=PATH)
# {id} in an ARG is the issue's id; BW_ISSUE_ID, BW_ISSUE_TITLE, BW_ISSUE_PRIORITY, BW_WORKER_ID say
# more. BW_CLAIMS says who claims, closes and requeues: worker (this one, through `bd`; BEADS_ACTOR
# counts) or orchestrator. Without it the orchestrator is asked, which 1.1 can answer; where it does
# not, a worker below a .beads folder claims.
set -u -m # -m: every background job leads its own process group, so it can be ended as a whole
[ $# -gt 0 ] && [ -n "${BW_SOCKET:-${ORCHESTRATOR_PID:-}}" ] && [[ ${BW_CLAIMS:-worker} =~ ^(worker|orchestrator)$ ]] ||
  { echo "usage: [BW_CLAIMS=worker|orchestrator] ORCHESTRATOR_PID=PID bw-worker.sh COMMAND [ARG...]" >&2; exit 2; }
socket=${BW_SOCKET:-/tmp/beads-workers-${ORCHESTRATOR_PID:-}.sock} me=W$$ runner='' timer='' task_id='' part='' silent=''
dir=$(mktemp -d "${TMPDIR:-/tmp}/bw-worker.XXXXXX") && mkfifo -m 600 "$dir/in" "$dir/out" "$dir/guard" || exit 1
trap : PIPE # where nobody reads stderr any more, what is said there is lost, and nobody ends
log() { printf '%s: %s\n' "$me" "$1" >&2; }
send() { # TYPE, the fields besides the base ones, jq options: one line, one write
  jq -cn --arg type "$1" --arg me "$me" "${@:3}" '{type: $type, worker_id: $me, timestamp: now} + '"$2" >&3
}
ready() {
  if [ -n "${BW_CLAIMS:-}" ]; then send READY '{}'; return; fi
  send READY '{version: "1.1", features: ["heartbeat"], heartbeat_seconds: 5}'
}
beat() { [ -n "${BW_CLAIMS:-}" ] || send HEARTBEAT '{version: "1.1"}'; }
extra='{}' limit='' request='' # of the TASK at hand: what an answer of 1.1 says beside version 1, its timeout_seconds, its request_id
fail() { # ID, why, milliseconds, what else it says
  send FAILED '{issue_id: $id, error: $why, duration_ms: $ms} + '"${4:-$extra}" --arg id "$1" --arg why "$2" --argjson ms "$3"
}
texts='def text: if . then tostring | gsub("\u0000"; "") else "" end;
  def words: .command? // null | if type == "array" and all(.[]; type == "string") then map(text) else [] end;'
hear() { # what $line says, in variables: empty where it lacks that, or is not one object
  type='' own=()
  eval "$(jq -rs "$texts"'
    def whole: type == "number" and . == floor and . >= 0;
    if length == 1 and (.[0] | type == "object") then .[0] else {} end
    | ((.worker_id | type == "string") and (.timestamp | type == "number") and (.title | type == "string") and
       (.issue_id | type == "string") and (.priority | whole and . <= 4)) as $task # no field may be missing, or of another type
    | [ @sh "type=\(.type | text) id=\(.issue_id | text) title=\(.title | text) priority=\(.priority | text)",
        @sh "name=\(.worker_id | text) asked=\(.request_id | text) seconds=\(.timeout_seconds | numbers // "") says=\(.claims | text)",
        @sh "file=\(.payload_file | text) own=(\(.payload? | words))",
        @sh "task=\($task) newer=\((.version | strings | test("^1[.][1-9][0-9]*$")) // false)",
        @sh "pause=\(if .wait_seconds | whole then [[.wait_seconds, 1] | max, 3600] | min else "" end)"
      ] | join(" ")
  ' <<<"$line" 2>/dev/null)"
}
project=$PWD claims=''
while [ -n "$project" ] && [ ! -d "$project/.beads" ]; do project=${project%/*}; done
who_claims() { # for the TASK that has come
  claims=${BW_CLAIMS:-$says}
  [ -n "$claims" ] || { [ -n "$project" ] && claims=worker || claims=orchestrator; }
}
tracker() { # not to our stderr: where nobody reads that, bd would be killed
  [ "$claims" != worker ] || bd "$@" </dev/null >"$dir/bd" 2>&1 || { log "bd $1: $(last_line "$dir/bd")"; return 1; }
}
last_line() { # the last line of a log that shows anything: why the task failed
  tail -c 4096 "$1" | sed -E 's/\x1b\[[0-9;?]*[A-Za-z]//g' | tr -d '\000-\010\013-\037\177' |
    grep '[^[:space:]]' | tail -n 1 | cut -c 1-300
}
run_task() { # claim, run, close, answer - in a background shell, which TERM makes requeue
  set -m
  trap : PIPE
  local id=$1 out=$dir/$1.log stop='' child='' clock='' killer='' status=0 error said=$extra began=${EPOCHREALTIME/[.,]/} command=("${@:2}")
  ms() { echo $(((${EPOCHREALTIME/[.,]/} - began) / 1000)); }
  end() { kill -TERM -- "-$child"; { sleep 5; kill -KILL -- "-$child"; } & killer=$!; } # the wait below may begin after it
  trap 'stop=1; [ -z "$child" ] || end' TERM
  tracker update "$id" --status=in_progress || error='claim failed'
  if [ -z "$stop${error:-}" ]; then
    "${command[@]//\{id\}/"$id"}" </dev/null >>"$out" 2>&1 3>&- 4<&- & child=$!
    [ -z "$stop" ] || end
    [ -z "$limit" ] || { sleep "$limit"; : >"$out.late"; kill -TERM -- "-$child"; sleep 5; kill -KILL -- "-$child"; } & clock=$!
    wait "$child" || status=$?
    kill -KILL -- "-$clock" 2>/dev/null
    for _ in {1..50}; do # asked to end, the group has five seconds
      [ -n "$stop" ] && kill -0 -- "-$child" && sleep 0.1 || break
    done 2>/dev/null
    kill -KILL -- "-$child" ${killer:+"-$killer"} 2>/dev/null
    child=''
    [ "$status" -ne 75 ] || [ "$extra" = '{}' ] || said="$extra + {outcome: \"retry\"}"
    [ "$status" -eq 0 ] || { error=$(last_line "$out"); error=${error:-exit status $status}; }
    [ ! -e "$out.late" ] || { error="timed out after $limit s" said="$extra + {outcome: \"timeout\"}"; rm "$out.late"; }
  fi
  if [ -n "$stop" ]; then
    local holder=(--assignee=) # where it is lost, it may be somebody else's by now; an older bd leaves it to the orchestrator
    [ ! -e "$dir/lost" ] || holder=(--if-status=in_progress --if-assignee=)
    tracker update "$id" --status=open "${holder[@]}"; return
  fi
  if [ -n "${error:-}" ]; then fail "$id" "$error" "$(ms)" "$said"; else
    tracker close "$id" || log "could not close $id" # still DONE: the orchestrator has a look
    send DONE '{issue_id: $id, duration_ms: $ms} + '"$extra" --arg id "$id" --argjson ms "$(ms)"
  fi
  [ -n "$stop" ] || { : >"$dir/free"; ready; }
}
busy() { # not after READY, although the shell that said it may still be ending when the answer comes
  if [ -e "$dir/free" ]; then wait "$runner" 2>/dev/null; runner=''; echo runner >&5; rm -f "$dir/free"; fi
  [ -n "$runner" ] && kill -0 "$runner" 2>/dev/null
}
guard() { # a worker that is killed ends nothing: this ends its task, once nobody holds the other end of the pipe
  local what pid runner='' timer='' line_out=''
  trap '' TERM INT HUP
  while read -r what pid; do printf -v "$what" %s "$pid"; done
  [ -d "$dir" ] || return # it has left by itself
  : >"$dir/lost"
  if [ -n "$runner" ] && [ ! -e "$dir/free" ]; then kill -TERM "$runner"; while kill -0 "$runner"; do sleep 0.1; done; fi
  kill -KILL -- ${timer:+"-$timer"} ${line_out:+"-$line_out"}
  rm -rf "$dir"
}
leave() { # end the task, give its issue back, go with this status
  trap '' TERM INT HUP; busy && kill -TERM "$runner" && wait "$runner"
  kill -KILL -- ${timer:+"-$timer"} "-$line_out" 2>/dev/null
  rm -rf "$dir"; [ -z "${2:-}" ] || log "$2"; exit "$1"
}
take() { # a TASK: refuse what is too much or makes no sense, else run it in the background
  if [ "$task" = false ] || ! [[ $id =~ ^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$ ]]; then log "ignored: ${line:0:300}"; return; fi
  [ -z "$asked" ] || [ "$asked" != "$request" ] || { log "repeated: $id"; return; }
  extra='{}' # where BW_CLAIMS is set, this worker has not opted in
  [ -n "${BW_CLAIMS:-}" ] || [ "$newer" = false ] || extra='{version: "1.1"}'
  if busy; then if [ "$id" = "$task_id" ]; then log "already at $id"; else fail "$id" busy 0; fi
  else
    stir; me=$name task_id=$id request=$asked limit=$seconds priority=${priority%%.*}; who_claims
    export BW_ISSUE_ID=$id BW_ISSUE_TITLE=${title:0:30000} BW_ISSUE_PRIORITY=$priority BW_WORKER_ID=$me
    [ -z "$file" ] || eval "$(jq -r "$texts"'@sh "own=(\(words))"' "$file" 2>/dev/null || echo 'own=(false)')" # none to be read: it fails
    [ ${#own[@]} -eq 0 ] || set -- "${own[@]}" # the issue's own command, in place of ours
    run_task "$id" "$@" 5>&- & runner=$!; echo "runner $runner" >&5
  fi
}
stir() { [ -z "$timer" ] || kill -KILL -- "-$timer" 2>/dev/null; timer=''; } # the newest WAIT or TASK counts
rest() { # a WAIT
  busy || [ -z "$pause" ] && return
  stir
  { sleep "$pause"; ready; } 5>&- & timer=$!; disown; echo "timer $timer" >&5
}
guard <"$dir/guard" >/dev/null 2>&1 & disown; exec 5>"$dir/guard"
# socat is our process to whoever listens: it stays until the task has ended, whose issue is free then.
# Its 1.8 closes no "-".
for delay in 1 2 4 ''; do
  socat -t 30 "STDIN!!STDOUT,shut-close" "UNIX-CONNECT:$socket" <"$dir/in" >"$dir/out" 2>/dev/null 5>&- & line_out=$!; disown; echo "line_out $line_out" >&5
  trap 'leave 0' TERM INT HUP; exec 3<>"$dir/in" 4<"$dir/out"; ready
  while IFS= read -r -t 2 line <&4 || { [ $? -gt 128 ] && silent=1; }; do
    line=$part$line part=''
    [ -z "$silent" ] || { part=$line silent=''; read -r -t 0 -u 4 || beat; continue; } # half a line may have come
    # the connection stands with the first line that is read
    delay=none
    hear
    case $type in
      TASK) take "$@" ;;
      WAIT) rest ;;
      SHUTDOWN) leave 0 ;;
      *) log "ignored: ${line:0:300}" ;;
    esac
  done
  [ "$delay" != none ] || { : >"$dir/lost"; leave 1 "the orchestrator is gone"; }
  [ -z "$delay" ] || { log "cannot connect, trying again in $delay s"; sleep "$delay"; exec 3<&-; }
done
leave 1 "cannot connect to $socket"
