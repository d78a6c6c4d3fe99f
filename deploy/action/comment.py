"""Leaves the review of the GitHub Action as one comment on the pull request, and updates it on the next push.

The comment begins with a mark that names the cluster, so that several clusters have a comment each. Without the right
to write (a pull request from a fork) it says so in a warning, and the job's summary still has the review.
"""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

BODY_MAX = 65_000  # GitHub takes 65,536 characters
_PAGES_MAX = 30
_CUT = "\n\n(cut off; the job's summary has all of it)\n"


def main(path: str) -> int:
    """Write or update the comment; return the exit status."""
    number = pull_request()
    if number is None:
        print("no pull request: no comment is left")
        return 0
    mark = f"<!-- dovetail review {os.environ.get('DOVETAIL_NAME', '').replace('-->', '')} -->"
    text = f"{mark}\n{Path(path).read_text(encoding='utf-8')}"
    if len(text) > BODY_MAX:
        text = text[: BODY_MAX - len(_CUT)] + _CUT
    repository = f"/repos/{os.environ['GITHUB_REPOSITORY']}"
    try:
        address = leave(repository, number, mark, text)
    except urllib.error.HTTPError as error:
        print(f"::warning title=Dovetail::the comment was not written ({error.code}); see the job's summary")
        return 0
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as output:
        output.write(f"comment={address}\n")
    print(f"the review is at {address}")
    return 0


def pull_request() -> int | None:
    """Return the number of the pull request that started the workflow; None if it was something else."""
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    number = (event.get("pull_request") or {}).get("number")
    return number if isinstance(number, int) else None


def leave(repository: str, number: int, mark: str, text: str) -> str:
    """Update the comment that carries the mark, or write one; return its address."""
    for page in range(1, _PAGES_MAX + 1):
        found = ask("GET", f"{repository}/issues/{number}/comments?per_page=100&page={page}")
        for comment in found:
            if str(comment.get("body") or "").startswith(mark) and may_edit(comment):
                return str(ask("PATCH", f"{repository}/issues/comments/{comment['id']}", {"body": text})["html_url"])
        if len(found) < 100:
            break
    return str(ask("POST", f"{repository}/issues/{number}/comments", {"body": text})["html_url"])


def may_edit(comment: dict[str, Any]) -> bool:
    """Return whether the comment can be this action's: a person who copied the mark keeps their comment."""
    return (comment.get("user") or {}).get("type") == "Bot"


def ask(method: str, path: str, body: Any = None) -> Any:
    """Send a request to GitHub's API and return its answer."""
    api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
    if not api.startswith(("https://", "http://")):
        raise SystemExit(f"GITHUB_API_URL is {api}; write an address with https://")
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        api + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
            "User-Agent": "dovetail-review",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
