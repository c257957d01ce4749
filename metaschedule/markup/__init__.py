"""HTML and SVG as text: what notebooks show of our values, and the charts of reports."""
