"""What the HTTP servers log: faults of their own.

A request that is no HTTP has its answer, a 400. Whoever can send one could fill the log with tracebacks otherwise.
"""

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError


def _is_ours(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


SERVER_LOG: Final = logging.getLogger("dovetail.http")
SERVER_LOG.addFilter(_is_ours)
