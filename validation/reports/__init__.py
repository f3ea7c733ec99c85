"""Renderings of a `Report`: `json_file`, `terminal`, `junit`, `html` (with `charts` and `templates/`).

`rejudge` judges the numbers of a saved report by other limits, and `command` is `deployops report`. Nothing here runs a
model. Every name in a report may come from a stranger: `plain_text` makes what is printed harmless, Jinja2 escapes what
goes into the page.
"""
