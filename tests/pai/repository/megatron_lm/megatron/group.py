"""What the processes of a job do together: over gloo under torchrun, over sockets under the stub for it."""

import os
import socket
import struct
import sys
import time

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
_PATIENCE_SECONDS = 100.0


class Sockets:
    """One process for each node: the first adds up what all bring."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["GROUP_RANK"]), int(os.environ["GROUP_WORLD_SIZE"])
        place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if self.rank:
            self._peers = [self._connect(place)]
        else:
            with socket.create_server(("", place[1]), backlog=self.size) as listening:
                listening.settimeout(_PATIENCE_SECONDS)
                self._peers = [listening.accept()[0] for _ in range(self.size - 1)]

    def _connect(self, place: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return socket.create_connection(place, timeout=_PATIENCE_SECONDS)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def sum(self, value: float) -> float:
        if self.rank:
            self._peers[0].sendall(struct.pack("d", value))
            return self._receive(self._peers[0])
        total = value + sum(map(self._receive, self._peers))
        for peer in self._peers:
            peer.sendall(struct.pack("d", total))
        return total

    def _receive(self, peer: socket.socket) -> float:
        got = peer.recv(8, socket.MSG_WAITALL)
        if len(got) < 8:
            raise ConnectionError("a rank of another node has gone")
        return float(struct.unpack("d", got)[0])

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


class Gloo:
    """Every rank of a real torchrun."""

    def __init__(self) -> None:
        import torch.distributed

        self._torch = torch
        torch.distributed.init_process_group("gloo")
        self.rank, self.size = RANK, WORLD_SIZE

    def sum(self, value: float) -> float:
        tensor = self._torch.tensor(value, dtype=self._torch.float64)
        self._torch.distributed.all_reduce(tensor)
        return float(tensor)

    def close(self) -> None:
        """End the process, too."""
        self._torch.distributed.destroy_process_group()
        sys.stdout.flush()
        # Threads of gloo that let go of a tensor while Python ends abort the process (pytorch/pytorch#179291).
        os._exit(0)


def join() -> Sockets | Gloo:
    return Gloo() if "TORCHELASTIC_RUN_ID" in os.environ else Sockets()
