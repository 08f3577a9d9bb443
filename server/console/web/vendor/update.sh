#!/usr/bin/env bash
# Fetches the libraries of the console's page from npm's registry, by version, with their licenses.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# take PACKAGE@VERSION FILE-IN-PACKAGE LICENSE-IN-PACKAGE NAME
take() {
  local folder=$work/$4
  mkdir -p "$folder"
  tar -xzf "$work/$(cd "$work" && npm pack --silent "$1")" -C "$folder"
  sed '/^\/\/# sourceMappingURL=/d' "$folder/package/$2" >"$4.mjs"
  { echo "$1"; echo; cat "$folder/package/$3"; } >"$4.license.txt"
}

take marked@18.2.1 lib/marked.esm.js LICENSE marked
take dompurify@3.4.18 dist/purify.es.mjs LICENSE purify
take @highlightjs/cdn-assets@11.11.1 es/highlight.min.js LICENSE highlight
