"""Work on thousands of models at a time, in processes on this machine or on a Dask cluster, with one writer to the catalog."""
