#!/usr/bin/env bash
# The review of the GitHub Action: annotations of validate, and diff as Markdown for the comment and the job's summary.
# Inputs come as DOVETAIL_* variables. The exit status is 0 unless the script itself fails: whether the check passes is
# written to the step's outputs, so that the comment is left either way.
set -euo pipefail

temp=${RUNNER_TEMP:?}
output=${GITHUB_OUTPUT:?}
summary=${GITHUB_STEP_SUMMARY:-/dev/null}
body=$temp/dovetail-review.md

mapfile -t change < <(printf '%s\n' "${DOVETAIL_CHANGE:-}" | sed 's/^[[:space:]]*//; s/[[:space:]]*$//' | sed '/^$/d')
title="## Dovetail${DOVETAIL_NAME:+: $DOVETAIL_NAME}"

finish() { # STATUS DRIFT
  cat "$body" >>"$summary"
  printf 'status=%s\ndrift=%s\n' "$1" "$2" >>"$output"
  exit 0
}

refuse() { # SENTENCE
  printf '%s\n\nThe change could not be reviewed: %s\n' "$title" "$1" >"$body"
  sentence=${1//'%'/%25}
  sentence=${sentence//$'\r'/%0D}
  printf '::error title=Dovetail::%s\n' "${sentence//$'\n'/%0A}"
  finish 2 ""
}

source=()
given=0
if [ -n "${DOVETAIL_CAPTURE:-}" ]; then given=$((given + 1)) && source=(-f "$DOVETAIL_CAPTURE"); fi
if [ -n "${DOVETAIL_RECORDING:-}" ]; then given=$((given + 1)) && source=(-f "$DOVETAIL_RECORDING"); fi
if [ -n "${DOVETAIL_CONTEXT:-}" ]; then
  given=$((given + 1))
  if [ "$DOVETAIL_CONTEXT" != current ]; then source=(--context "$DOVETAIL_CONTEXT"); fi
fi
if [ "$given" -ne 1 ]; then refuse "give one of the inputs capture, recording and context"; fi
if [ "${#change[@]}" -eq 0 ]; then refuse "the input change names no manifests"; fi
options=()
if [ -n "${DOVETAIL_CATALOG:-}" ]; then options+=(--catalog "$DOVETAIL_CATALOG"); fi
if [ -n "${DOVETAIL_SETTINGS:-}" ]; then options+=(--settings "$DOVETAIL_SETTINGS"); fi
if [ -n "${DOVETAIL_POLICY:-}" ]; then options+=(--policy "$DOVETAIL_POLICY"); fi
if [ -n "${DOVETAIL_FAIL_ON:-}" ]; then options+=(--fail-on "$DOVETAIL_FAIL_ON"); fi

dovetail validate -o github "${change[@]}" || true # diff says it again, and decides

run_diff() { # FORM FILE
  local status=0
  dovetail diff "${source[@]}" --change "${change[@]}" "${options[@]}" -o "$1" >"$2" 2>"$temp/dovetail-notes" || status=$?
  return "$status"
}

status=0
run_diff markdown "$temp/dovetail-diff.md" || status=$?
cat "$temp/dovetail-notes" >&2
if [ "$status" -gt 1 ]; then refuse "$(sed -n 's/^dovetail: //p' "$temp/dovetail-notes" | tail -n 1)"; fi
run_diff json "$temp/dovetail-diff.json" || true
drift=$(python3 -c 'import json, sys; print(sum(entry["nodes"] for entry in json.load(open(sys.argv[1]))["drifts"]))' "$temp/dovetail-diff.json")
{ printf '%s\n\n' "$title" && cat "$temp/dovetail-diff.md"; } >"$body"
finish "$status" "$drift"
