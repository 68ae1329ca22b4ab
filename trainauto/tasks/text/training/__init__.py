"""Language models trained on local texts: files, tokens, batches, the model, validation; plain arguments, no options.

Read in this order: ``text_files``, ``tokenizers``, ``encoding``, ``token_samples``, ``text_dataset``, ``networks``,
``language_model``, ``text_validation``. Nothing here loads transformers before it is needed.
"""
