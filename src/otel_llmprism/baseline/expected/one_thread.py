# Numeric libraries start a thread a core for every product of small matrices and let them spin: on two busy
# cores a fit then took fifteen times as long. Knows no model.
import contextlib
from collections.abc import Iterator

try:
    import threadpoolctl
except ImportError:  # the extra "baseline" is not installed
    threadpoolctl = None


@contextlib.contextmanager
def compute_on_one_thread() -> Iterator[None]:
    """Let this process's products run on one thread while the block lasts."""
    if threadpoolctl is None:
        yield
        return
    with threadpoolctl.threadpool_limits(limits=1):
        yield


def stay_on_one_thread() -> None:
    """Do so for good: for a service of ours, never in a process of the user's."""
    if threadpoolctl is not None:
        threadpoolctl.threadpool_limits(limits=1)
