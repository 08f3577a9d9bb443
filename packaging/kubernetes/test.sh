#!/usr/bin/env bash
# packaging/kubernetes/test.sh: installs the schemas of Kubernetes and of the Prometheus operator (npm, in
# build/kubernetes-models) and checks the base and the chart, rendered with several values, against them.
# Needs kubectl, node and npm, and, for the chart, golang-go, golang-github-masterminds-sprig-dev and
# golang-k8s-sigs-yaml-dev. What is skipped is reported.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=build/kubernetes-models
mkdir -p "$folder"
# --force: the packages ask for a newer Node.js than they need.
npm install --prefix "$folder" --no-audit --no-fund --ignore-scripts --force --loglevel=error kubernetes-models@5 \
  @kubernetes-models/prometheus-operator js-yaml@4 typescript@5 >/dev/null
python3 tests/packaging/kubernetes_test.py -v
