"""Views of results for notebooks: static tables and charts, and filters to explore them.

Every filter is shown beside a static table of the same rows: an archived page is whole without JavaScript.
"""

from __future__ import annotations

from fusionkit.widgets.charts import bar_chart_svg
from fusionkit.widgets.filter import site_explorer
from fusionkit.widgets.tables import html_table, show

__all__ = ["bar_chart_svg", "html_table", "show", "site_explorer"]
