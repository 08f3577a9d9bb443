#!/usr/bin/env python3
"""docs/openapi.json serves generated clients: a license, an id for every operation, and the errors that it may answer. Prints
every breach, exits 1 if any. That it has every route, field and option is what OpenApi.* of the server's tests check.

usage: check_openapi.py [ROOT]
"""
import json
import pathlib
import re
import sys


def id_of(method, path):
    """The name of an operation: postApiChat, getV1ModelsModel."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", path) if word]
    name = "".join(word[0].upper() + word[1:] for word in words) or "Root"
    return method + name + ("Index" if words and path.endswith("/") else "")


def errors_of(operation):
    """Statuses of errors that an operation must list, beside the default."""
    codes = {"400"} if "requestBody" in operation or "parameters" in operation else set()
    if "requestBody" in operation:
        codes.add("413")
    if operation.get("security") != []:
        codes.add("401")
    return codes


def check(document):
    breaches = [] if document["info"].get("license") else ["info.license is missing"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            what = f"{method.upper()} {path}"
            wanted = id_of(method, path)
            if operation.get("operationId") != wanted:
                breaches.append(f"{what}: operationId is {operation.get('operationId')}, expected {wanted}")
            for code in sorted({*errors_of(operation), "default"} - set(operation["responses"])):
                breaches.append(f"{what}: the reply {code} is missing")
    return breaches


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = check(json.loads((root / "docs/openapi.json").read_text()))
    for breach in found:
        print(breach)
    sys.exit(1 if found else 0)
