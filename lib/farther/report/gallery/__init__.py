"""The gallery: a page of images, and the data that it loads."""
