"""Parts of the composition root: each builds one kind of thing from options."""
