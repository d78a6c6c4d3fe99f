"""What `dovetail snapshot` writes about itself, for tests whose small cluster is all that there is."""

from datetime import UTC, datetime

from dovetail.api.reading.capture_document import capture_document
from dovetail.model.cluster import FIELD_OF, CaptureOrigin


def whole_capture(at: datetime = datetime(2026, 3, 14, 15, 30, tzinfo=UTC)) -> dict[str, object]:
    """Return the object that says that every kind was listed, so that what is not there does not exist."""
    return capture_document(at, CaptureOrigin(name="test", kinds=tuple(kind.__name__ for kind in FIELD_OF)))
