def observe(address: int, numel: int, dtype_code: int, row_address: int, groups: int, num_threads: int, /) -> None: ...
def observe_many(entries_address: int, num_entries: int, groups: int, num_threads: int, /) -> None: ...
def observe_extras(
    address: int, numel: int, columns: int, dtype_code: int, cells_address: int, specs_address: int, num_specs: int, num_threads: int, /
) -> None: ...
def checksum(entries_address: int, num_entries: int, sums_address: int, num_threads: int, /) -> None: ...
def first_bad(block_address: int, num_rows: int, /) -> int: ...
def bad_rows(block_address: int, num_rows: int, /) -> list[int]: ...
def reset(block_address: int, num_rows: int, /) -> None: ...
def isa() -> str: ...
def choose_isa(name: str, /) -> bool: ...
def cast_quantize(
    address: int,
    rows: int,
    columns: int,
    dtype_code: int,
    spec_address: int,
    scale_address: int,
    values_address: int,
    codes_address: int,
    scale_inv_address: int,
    cells_address: int,
    amax_address: int,
    num_threads: int,
    /,
) -> bool: ...
def cast_amax(address: int, numel: int, dtype_code: int, num_threads: int, /) -> float: ...
def cast_decode(
    codes_address: int,
    rows: int,
    columns: int,
    table_address: int,
    bytes: int,
    values_address: int,
    scale_inv_address: int,
    block_rows: int,
    block_columns: int,
    num_threads: int,
    /,
) -> None: ...
