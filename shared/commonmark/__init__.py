"""Reading Markdown in time that grows with the text alone: its blocks, what of it is inline text, its links and headings (CommonMark 0.31).

Standard library only, so that every service may read what a person, a note or a model wrote (docs/adr/0016, 0023).
"""
