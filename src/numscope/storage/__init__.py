"""Run folders in other storages (s3://, gs://, whatever fsspec reaches): writing to them, and reading parts of their files."""
