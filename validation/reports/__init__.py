"""Renderings of a `Report`: terminal, JSON, JUnit, HTML. Nothing here runs or judges anything."""
