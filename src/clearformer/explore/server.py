"""The explorer's server, which ends open streams before it closes."""

from clearformer.http_server import server


class Server(server.Server):
    """Serves an explorer."""

    async def before_shutdown(self) -> None:
        self.app.state.explorer.closing = True
