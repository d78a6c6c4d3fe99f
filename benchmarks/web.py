"""How fast the plan's page of a large cluster is drawn and filtered in a real browser.

Run: python -m benchmarks.web CLUSTER.json.gz CATALOG.json.gz  (prints JSON; medians of five)
"""

import contextlib
import io
import json
import statistics
import sys
import tempfile
from pathlib import Path

from tests.browser.chromium import stop, tab

from dovetail.cli.main import main

_FILTER = """
(text) => {
  const search = document.querySelector("input.search");
  const before = performance.now();
  search.value = text;
  search.dispatchEvent(new Event("input"));
  document.querySelector(".rows").getBoundingClientRect();
  return performance.now() - before;
}
"""


def measure(cluster: str, catalogue: str) -> dict[str, float]:
    """Return seconds and milliseconds, as medians."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["plan", "-f", cluster, "--catalog", catalogue, "--now", "2026-05-13T15:30:00Z", "-o", "html"])
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "plan.html"
        page.write_text(out.getvalue(), encoding="utf-8")
        drawn, filtered = [], []
        for _ in range(5):
            with tab() as browser:
                browser.open(page)
                drawn.append(
                    browser.page.evaluate(
                        "performance.getEntriesByName('drawn')[0].startTime"
                        " - performance.getEntriesByType('navigation')[0].domInteractive"
                    )
                )
                filtered += [browser.page.evaluate(_FILTER, text) for text in ("node-00", "default pod", "zz", "")]
        stop()
        return {
            "pageBytes": page.stat().st_size,
            "drawnMilliseconds": round(statistics.median(drawn)),
            "filteredMilliseconds": round(statistics.median(filtered), 1),
            "filteredMillisecondsMax": round(max(filtered), 1),
        }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2]), indent=1))
