"""Tasks of dispatcherd, run as its own workers run them.

They are run by its ``TaskWorker`` if the package is installed in this Python, else in much the same
way. Only allowed modules are imported, and nothing is evaluated. Source: docs/DISPATCHERD.md, "How
tasks are run".
"""

from __future__ import annotations

import importlib
import os
import signal
from _signal import SIG_IGN, SIGUSR1  # type: ignore[import-not-found]  # C's own: no enums
from _signal import signal as set_handler
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import OutcomeKind, value
from beads_workers.executors import functions
from beads_workers.integrations.dispatcherd.wire import (
    CANCELLED_RESULT,
    TaskDone,
    from_worker_fields,
)

CONFIG_VARIABLE = "DISPATCHERD_CONFIG_FILE"
"""Environment variable: path of dispatcherd's settings. They name the worker class, and tasks
publish other tasks by them."""

Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Asks the orchestrator: a control command and its data; returns the answer."""

CANCELLED = functions.CallResult(OutcomeKind.ERROR, error="cancelled by SIGUSR1")
"""Result of a cancelled call: the requester knows the reason."""


class Cancelled(BaseException):
    """Exception raised by SIGUSR1 while no handler of dispatcherd is installed."""


def _cancel(*_: object) -> None:
    raise Cancelled


class DispatcherCaller:
    """Runs one message after the other: call ``prepare`` and then ``call`` for each."""

    def __init__(
        self, worker_id: str, resolver: functions.Resolver, caller: functions.Caller, ask: Ask
    ) -> None:
        self._number = _number(worker_id)
        self._resolver = resolver
        self._caller = caller
        self._ask = ask
        self._worker: Any = None
        self._is_ready = self._has_shut_down = False

    def prepare(self, path: str | None) -> bool:
        """Make the worker, and import this task; return False if there was nothing to do.

        None: import everything that may be called. Raises ``NotCallable``, and ``Cancelled`` if
        SIGUSR1 arrives meanwhile.
        """
        if self._is_ready and (path is None or path in self._resolver.known):
            return False
        set_handler(SIGUSR1, _cancel)
        try:
            if not self._is_ready:
                self._worker = self._made()
                self._is_ready = True
            if path is None:
                self._resolver.load()  # No task waits: everything that may be called is imported.
            elif path not in self._resolver.known:
                self._resolver.find(path)
        finally:
            # While no task runs, SIGUSR1 has nothing to cancel and must not kill us.
            set_handler(SIGUSR1, SIG_IGN)
        return True

    def call(self, message: dict[str, Any]) -> functions.CallResult:
        """Run a prepared task to its end, and then its callbacks."""
        try:
            try:
                return self._plainly(message) if self._worker is None else self._by_its_own(message)
            finally:
                set_handler(SIGUSR1, SIG_IGN)
        except Cancelled:
            return CANCELLED

    @property
    def idle_seconds(self) -> float:
        """Seconds without a task after which ``rest`` is due, repeatedly; 0: never."""
        return float(getattr(self._worker, "idle_timeout", 0) or 0)

    def rest(self) -> None:
        """Call the application's ``on_idle``, which may close what would become stale."""
        try:
            self._worker.on_idle()
        except Exception as error:  # An error of the application must not affect tasks.
            self._worker.complain("on_idle", error)

    def close(self) -> None:
        """Call the application's ``on_shutdown``, once, at the end."""
        if self._worker is None or self._has_shut_down:
            return
        self._has_shut_down = True
        try:
            self._worker.on_shutdown()
        except Exception as error:  # An error of the application: its last task has ended before.
            self._worker.complain("on_shutdown", error)

    def _made(self) -> Any:
        try:
            return self._task_worker()
        except Exception as error:  # Settings and class of the application may raise anything.
            raise functions.cannot(
                f"dispatcherd's worker cannot be made: {error!r}", error
            ) from error

    # --- with the package -------------------------------------------------------------------------

    def _task_worker(self) -> Any:
        if find_spec("dispatcherd") is None:
            return None
        config = importlib.import_module("dispatcherd.config")
        if not config.is_setup() and CONFIG_VARIABLE in os.environ:
            config.setup()
        kind = "dispatcherd.worker.task.TaskWorker"
        options: dict[str, Any] = {}
        if config.is_setup():
            kind = config.settings.worker.get("worker_cls", kind)
            options = config.settings.worker.get("worker_kwargs", options)
            for module in _preloaded(config.settings.service):
                importlib.import_module(module)
        resolve = importlib.import_module("dispatcherd.utils").resolve_callable
        line = _QueuePair(self._ask)
        before = {number: signal.getsignal(number) for number in _ITS_SIGNALS}
        worker = _ours(resolve(kind), self._resolver)(
            worker_id=self._number, message_queue=line, finished_queue=line, **options
        )
        for number, handler in before.items():
            signal.signal(number, handler)
        worker.on_start()
        return worker

    def _by_its_own(self, message: dict[str, Any]) -> functions.CallResult:
        worker = self._worker
        worker.raised = None
        worker.enter_task_mode()
        try:
            try:
                worker.pre_task(message)
            except Exception as error:  # As in the real worker: a hook's error is not the task's.
                worker.complain("pre_task", error)
            finished = worker.perform_work(message)
            set_handler(SIGUSR1, SIG_IGN)
            worker.post_task(finished)
        except (functions.CallTerminated, Cancelled):
            raise
        except SystemExit as left:
            return functions.CallResult(
                OutcomeKind.ERROR, error=f"it called exit({left.code!r})"[:200]
            )
        except BaseException as error:  # Any exception is the task's outcome.
            return functions.failed(error)
        try:
            done = from_worker_fields(finished)
        except (ProtocolError, AttributeError):
            done = None
        if not isinstance(done, TaskDone):
            # A worker class of the application may return anything.
            return functions.CallResult(
                OutcomeKind.ERROR, error="its worker class does not say how it ended"
            )
        answer = _answer(worker.raised, done.result)
        if done.is_stopping:
            self.close()
            return replace(answer, is_stopping=True)
        return answer

    # --- without it -------------------------------------------------------------------------------

    def _plainly(self, message: dict[str, Any]) -> functions.CallResult:
        set_handler(SIGUSR1, _cancel)
        answer = self._one(message)
        further = [] if answer.kind is OutcomeKind.SUCCESS else _listed(message, "errbacks")
        for callback in further + _listed(message, "callbacks"):
            self._one({**callback, "uuid": message.get("uuid", "")})
        return answer

    def _one(self, message: Mapping[str, Any]) -> functions.CallResult:
        path = message.get("task")
        try:
            function = self._resolver.known.get(str(path)) or self._resolver.find(str(path))
        except functions.NotCallable as error:
            return functions.not_callable(error)
        args = list(message.get("args") or ())
        if message.get("bind") is True:
            args.insert(0, Bound(self._number, str(message.get("uuid", "")), self._ask))
        if isinstance(function, type) and hasattr(function, "run"):
            made = function
            return self._caller.call(
                lambda *a, **k: made().run(*a, **k), args, message.get("kwargs") or {}
            )
        return self._caller.call(function, args, message.get("kwargs") or {})


def _preloaded(service: Mapping[str, Any]) -> list[str]:
    """Return the modules that the real service's processes import before anything else.

    Such a module may set up its application.
    """
    found: list[str] = (service.get("process_manager_kwargs") or {}).get("preload_modules") or []
    return found


_ITS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""Signals that a ``TaskWorker`` sets handlers for when it is made; here they are set only while
a task runs."""


@value
class Bound:
    """The first argument of a task with ``bind`` if dispatcherd is not installed."""

    worker_id: int
    uuid: str
    ask: Ask

    def control(self, command: str, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a control command to the orchestrator; return its answer."""
        return self.ask(command, data or {})


class _QueuePair:
    """Both queues of a ``TaskWorker``: a question is put into one, its answer is read from the
    other."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._answer: dict[str, Any] = {}

    def put(self, message: Mapping[str, Any]) -> None:
        self._answer = self._ask(str(message["command"]), message.get("control_data") or {})

    def get(self) -> dict[str, Any]:
        return self._answer


def _ours(kind: Any, resolver: functions.Resolver) -> Any:
    """Return a subclass that calls only allowed functions, and keeps exceptions."""

    class Worker(kind):  # type: ignore[misc]
        raised: BaseException | None = None

        def run_callable(self, message: dict[str, Any]) -> Any:
            path = message["task"]
            if path not in resolver.known:
                resolver.find(path)  # A callback, whose name came with the message.
            return super().run_callable(message)

        def get_finished_message(self, raw_result: Any, *args: Any, **kwargs: Any) -> Any:
            # The last call is the one for the task itself, after its callbacks.
            self.raised = raw_result if isinstance(raw_result, BaseException) else None
            return super().get_finished_message(raw_result, *args, **kwargs)

        def complain(self, hook: str, error: Exception) -> None:
            logging = importlib.import_module("logging")
            logging.getLogger(__name__).error("%s failed", hook, exc_info=error)

    return Worker


def _answer(raised: BaseException | None, result: Any) -> functions.CallResult:
    if isinstance(raised, functions.NotCallable):
        return functions.not_callable(raised)
    if raised is not None:
        # dispatcherd has printed the traceback already.
        return replace(functions.failed(raised), trace="")
    return CANCELLED if result == CANCELLED_RESULT else functions.succeeded(result)


def _listed(message: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = message.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _number(worker_id: str) -> int:
    digits = worker_id.removeprefix("W").partition(".")[0]
    return int(digits) if digits.isdecimal() and len(digits) < 10 else 0


def open_caller(
    worker_id: str, resolver: functions.Resolver, caller: functions.Caller, ask: Ask
) -> DispatcherCaller:
    """Return the object that calls the tasks of one worker; made at the first task."""
    return DispatcherCaller(worker_id, resolver, caller, ask)
