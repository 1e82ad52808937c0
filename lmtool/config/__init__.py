"""Settings: of the verbs (verbs.py, model_verbs.py), the contract of each group of options (groups.py), and the finder
of options (options.py). Values are in conf/*.yaml alone; types and ranges are here and beside each option.
"""
