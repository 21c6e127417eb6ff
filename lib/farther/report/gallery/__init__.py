"""The gallery: images by what became of the objects in them, drawn from the dataset's own files.

`farther.report.gallery.page.write` adds the page `gallery.html` to a report, and beside it the data,
which the page loads when they are chosen: what a run and a split hold in `gallery/<run>/<split>.js`, what a method made
of it in `gallery/<run>/<split>/<method>.js`; see `farther.report.gallery.data`.
"""
