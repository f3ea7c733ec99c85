"""Print the JSON Schema of a report: ``python -m deployops.validation.reports.json_schema > docs/report.schema.json``."""

from __future__ import annotations

import json

from .json_file import schema

__all__: list[str] = []

if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
