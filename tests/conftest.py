"""Its being here puts this folder on the path, so every test can import the helpers in it."""
