"""Asks the program fakeserver for each of its faults, as a test in Python would."""

import http.client
import os
import urllib.error
import urllib.request


def call(fault):
    """Returns how a request with this fault ends."""
    url = os.environ["MSGPUSH_BASE_URL"] + "/api/open/mail/detail?mailId=101"
    headers = {"access-key": os.environ["MSGPUSH_ACCESS_KEY"], "Fakeserver-Fault": fault}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=0.5) as response:
            return response.headers.get_content_type() + " " + response.read().decode()[:11]
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.headers.get('Retry-After')}"
    except (OSError, http.client.HTTPException) as error:
        return type(getattr(error, "reason", error)).__name__


for fault, want in {
    "status:503": "503 None",
    "status:503:2": "503 2",
    "delay:10ms": 'application/json {"code":200',
    "delay:1m": "TimeoutError",
    "reset": "ConnectionResetError",
    "truncate": "IncompleteRead",
    "html": "text/html <!DOCTYPE h",
    "rejected-key": 'application/json {"code":401',
}.items():
    got = call(fault)
    assert got == want, f"{fault}: {got}, not {want}"
