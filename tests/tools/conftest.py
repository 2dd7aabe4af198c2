"""The small project of the report's tests, for the tools that read one."""

from tests.report.conftest import built, project

__all__ = ["built", "project"]
