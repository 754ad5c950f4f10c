"""How long a connection may take to say what it wants. Uvicorn waits for ever for the head of a request, and connections are
counted: a thousand that say nothing would keep everybody else out."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def impatient(head_timeout_s: float) -> type[H11Protocol]:
    """Uvicorn's protocol, with a limit on the time in which the head of a request arrives."""

    class Impatient(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            super().connection_lost(exc)

        def _watch(self) -> None:
            if not self._is_waiting():
                self._unwatch()
            elif self._timer is None:
                self._timer = self.loop.call_later(head_timeout_s, self._give_up)

        def _unwatch(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _is_waiting(self) -> bool:
            """Whether no request is under way: its head has not come, or not all of it."""
            return self.cycle is None or self.cycle.response_complete

        def _give_up(self) -> None:
            self._timer = None
            if self._is_waiting() and not self.transport.is_closing():
                self.transport.close()

    return Impatient
