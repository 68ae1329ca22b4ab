"""Option files of traiNNer-redux, BasicSR and neosr, translated key by key, so that nothing is lost in silence."""
