#!/usr/bin/env bash
# Resolve every YAML of a folder, compare with its committed preview, check strictly.
# Usage: ci_preflight.sh CONFIG_DIR PREVIEW_DIR   (exit 0 all sound, 2 a config or preview is not)
set -euo pipefail
if [ $# -ne 2 ]; then
  echo "usage: $0 CONFIG_DIR PREVIEW_DIR" >&2
  exit 2
fi
configs=$1
previews=$2
solarwm=${SOLARWM:-solarwm}
status=0
fresh=$(mktemp -d)
trap 'rm -r "$fresh"' EXIT
shopt -s nullglob
files=("$configs"/*.yaml "$configs"/*.yml)
if [ ${#files[@]} -eq 0 ]; then
  echo "$0: no *.yaml or *.yml in $configs" >&2
  exit 2
fi
for config in "${files[@]}"; do
  name=$(basename "${config%.*}")
  preview=$previews/$name.json
  if ! "$solarwm" config resolve --config "$config" --output "$fresh/$name.json"; then
    status=2
    continue
  fi
  if [ ! -f "$preview" ]; then
    echo "$config: no preview; run: $solarwm config resolve --config $config --output $preview"
    status=2
    continue
  fi
  if ! "$solarwm" config check --strict "$preview"; then
    status=2
  fi
  if ! digests=$("$solarwm" config diff "$preview" "$fresh/$name.json" --json 2>/dev/null); then
    echo "$config: the preview cannot be compared; resolve it again"
    status=2
    continue
  fi
  case $digests in
    *'"equal": true'*) ;;
    *)
      echo "$config: the preview is out of date:"
      "$solarwm" config diff "$preview" "$fresh/$name.json" || true
      status=2
      ;;
  esac
done
exit $status
