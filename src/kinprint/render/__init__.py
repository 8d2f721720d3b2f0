"""Write finished results in every form: terminal, page, Markdown, tables, BOM, SARIF, notebook; read and conclude nothing."""
