// A run as the page's data hold it. Its columns are unpacked when they are asked for.

export class Run {
  constructor(data) {
    this.take(data);
  }

  // Takes the run as it is now, in place of what it was.
  take(data) {
    Object.assign(this, data);
    this.width = this.first.length;
    this.rows = new Map(this.sites.map((site, row) => [siteKey(site.layer, site.tensor), row]));
    this.kindOf = new Map(this.kinds.map((kind) => [kind.name, kind]));
    this._unpacked = new Map();
  }

  // A statistic's cells, sites × columns: the worst of each column's steps, or the other extreme. Null where the run has none.
  async cells(name, extreme = this.kindOf.get(name)?.worst) {
    return this._once(`${name} ${extreme}`, this.columns[`${name} ${extreme}`]);
  }

  // The losses by their models' names.
  async lossCells() {
    const at = (name, extreme) => this._once(`loss ${name} ${extreme}`, this.losses[name][extreme]);
    return Promise.all(Object.keys(this.losses).map(async (name) => [name, { max: await at(name, "max"), min: await at(name, "min") }]));
  }

  // The learning rates, by the numbers of the optimizers' groups that have them.
  async rateCells() {
    return Promise.all(Object.entries(this.rates).map(async ([groups, packed]) => [groups, await this._once(`rates ${groups}`, packed)]));
  }

  async rankCells() {
    return this._once("ranks", this.ranks.amax);
  }

  async histogram(row, step) {
    const given = this.histograms;
    const place = given ? given.sites.indexOf(row) : -1;
    if (place < 0) return null;
    const counts = await this._once("histograms", given.counts);
    const at = (stretch) => (place * given.first.length + stretch) * given.bins;
    let best = -1;
    for (let i = 0; i < given.first.length; i++) {
      const holds = counts.subarray(at(i), at(i) + given.bins).some((x) => x > 0);
      if (holds && (best < 0 || given.first[i] <= step)) best = i;
    }
    if (best < 0) return null;
    return { first: given.first[best], last: given.last[best], lowest: given.lowest, counts: counts.subarray(at(best), at(best) + given.bins) };
  }

  // The column that holds a step, or the last one before it.
  columnOf(step) {
    let low = 0;
    let high = this.width - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.first[middle] <= step) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // Its columns that have steps from first to last: where the first is, and the one behind the last.
  columnsWithin(first, last) {
    let from = this.columnOf(first);
    if (this.last[from] < first) from += 1;
    let to = from;
    while (to < this.width && this.first[to] <= last) to += 1;
    return [from, to];
  }

  // A line of its numbers in the columns of another run, of several of them the worst.
  onColumnsOf(other, numbers, worst = "max") {
    return Float32Array.from(other.first, (first, column) => worstWithin(numbers, 0, this.columnsWithin(first, other.last[column]), worst));
  }

  rowOf(layer, tensor) {
    return this.rows.get(siteKey(layer, tensor)) ?? -1;
  }

  tensorsOf(layer) {
    return this.sites.flatMap((site, row) => (site.layer === layer ? [row] : []));
  }

  _once(key, packed) {
    if (packed === undefined) return null;
    if (!this._unpacked.has(key)) this._unpacked.set(key, unpack(packed));
    return this._unpacked.get(key);
  }
}

export function worstWithin(cells, start, [from, to], worst) {
  let found = NaN;
  for (let i = start + from; i < start + to; i++) if (!(worst === "max" ? cells[i] <= found : cells[i] >= found) && !Number.isNaN(cells[i])) found = cells[i];
  return found;
}

function siteKey(layer, tensor) {
  return `${layer}\n${tensor}`;
}

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const decoded = atob(text);
  const bytes = new Uint8Array(decoded.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = decoded.charCodeAt(i);
  return bytes;
}

// Base64 of deflated float32 numbers, their bytes ordered by significance.
export async function unpack(text) {
  const packed = bytesOf(text);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = planes.length / 4;
  const bytes = new Uint8Array(planes.length);
  for (let plane = 0; plane < 4; plane++) {
    for (let i = 0, from = plane * length; i < length; i++) bytes[4 * i + plane] = planes[from + i];
  }
  return new Float32Array(bytes.buffer);
}
