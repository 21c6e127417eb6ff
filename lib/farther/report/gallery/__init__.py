"""Images with the outcomes of their objects: of each run and split, as data of the gallery's page, and as examples."""
