"""What submission.py is made of. `make submission` joins these modules into one file as manifest.yml says."""
