"""Tables from run folders: pure functions of files, readable while runs go on, without PyTorch."""
