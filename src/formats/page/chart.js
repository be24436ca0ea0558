  // The chart of nodes by state over time, and the waves and waits above it.

  const HEIGHT = 150;
  // Above the areas, for marks of failures.
  const ROOM = 18;
  // Of waits that overlap, so many are drawn above each other; the table has all.
  const LANES = 3;

  /** Every change of a row's state. */
  function changes(row) {
    const found = [];
    const phases = row.spans.filter((span) => span.phase !== 'Waiting');
    for (const span of phases) found.push([span.from, STEPS[span.phase] || 'preparing']);
    const last = phases.at(-1);
    if (last && last.to !== undefined && last.phase !== 'Failed') {
      const end = { done: 'done', failed: 'failed', released: 'waiting' }[row.state];
      if (end) found.push([last.to, end]);
    }
    return found;
  }

  /** The number of nodes in each state from each time on. Nodes without a row are done before, or wait. */
  function series(rows, plans) {
    const count = (of) => plans.reduce((sum, plan) => sum + plan[of], 0);
    const before = Math.max(0, count('done') - rows.filter((row) => row.state === 'done').length);
    const counts = Object.fromEntries(STATES.map((name) => [name, 0]));
    counts.done = before;
    counts.waiting = Math.max(rows.length, count('selected') - before);
    const events = [];
    for (const row of rows) {
      let was = 'waiting';
      for (const [at, is] of changes(row)) {
        events.push([at, was, is]);
        was = is;
      }
    }
    events.sort((one, other) => one[0] - other[0]);
    const points = [{ at: -Infinity, counts: { ...counts } }];
    for (const [at, was, is] of events) {
      counts[was] -= 1;
      counts[is] += 1;
      if (points.at(-1).at === at) points.at(-1).counts = { ...counts };
      else points.push({ at, counts: { ...counts } });
    }
    return points;
  }

  /** The last point before a time. */
  function pointAt(points, at) {
    let [low, high] = [0, points.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (points[middle].at <= at) low = middle;
      else high = middle - 1;
    }
    return points[low];
  }

  const counted = (counts) => STATES.toReversed().filter((name) => counts[name] > 0).map((name) => `${counts[name]} ${name}`).join(', ');

  /** The areas of a chart of so many pixels, up to `until`. */
  function areas(points, range, width, height, until) {
    const x = (at) => place(at, range) * width;
    const end = x(Math.min(until, range[1]));
    // One point for each pixel is all that one sees.
    const drawn = [];
    for (const point of [{ at: range[0], counts: pointAt(points, range[0]).counts }, ...points.filter((one) => one.at > range[0] && one.at < Math.min(until, range[1]))]) {
      const left = Math.round(x(point.at));
      if (drawn.length && drawn.at(-1).left === left) drawn.at(-1).counts = point.counts;
      else drawn.push({ left, counts: point.counts });
    }
    const total = STATES.reduce((sum, name) => sum + points[0].counts[name], 0) || 1;
    const floor = new Array(drawn.length).fill(0);
    return STATES.map((name) => {
      const top = drawn.map((point, index) => floor[index] + point.counts[name]);
      const y = (value) => (height - value * height / total).toFixed(1);
      const edge = (values) => values.map((value, index) => [drawn[index].left, drawn[index + 1]?.left ?? end, y(value)]);
      const there = edge(top).map(([from, to, at]) => `L${from},${at} ${to},${at}`);
      const back = edge(floor).reverse().map(([from, to, at]) => `L${to},${at} ${from},${at}`);
      top.forEach((value, index) => { floor[index] = value; });
      return draw('path', { class: `area ${name}`, fill: `url(#p-${name})`, d: `M${there.join('').slice(1)}${back.join('')}Z` });
    });
  }

  /** Where nodes failed; marks that would overlap are one. */
  function failureMarks(rows, range, width) {
    const times = rows.flatMap((row) => changes(row).filter(([, is]) => is === 'failed').map(([at]) => at)).filter((at) => at >= range[0] && at <= range[1]).sort((a, b) => a - b);
    const marks = [];
    for (const at of times) {
      const left = place(at, range) * width;
      if (marks.length && left - marks.at(-1).left < 26) marks.at(-1).count += 1;
      else marks.push({ left, count: 1 });
    }
    return marks.map(({ left, count }) => draw('text', { class: 'mark', x: Math.min(left, width - 14), y: -4, 'text-anchor': 'middle' }, count > 1 ? `✕${count}` : '✕'));
  }

  function bandElement(band, range) {
    const to = band.to ?? Math.max(seconds(state.now), band.from);
    if (to < range[0] || band.from > range[1]) return null;
    return put(make('div', { class: `band ${band.kind}`, title: [band.label, band.message, duration(to - band.from)].filter(Boolean).join(' · ') }, band.label), band.from, to, range);
  }

  /** The waves of a Plan in one lane, and its waits in the first lane that is free. */
  function lanes(plan, range) {
    const own = state.bands.filter((band) => band.plan === plan.name && band.kind !== 'closed');
    const waves = own.filter((band) => !band.message);
    const free = [];
    const waits = own.filter((band) => band.message).toSorted((a, b) => a.from - b.from);
    for (const band of waits) {
      const to = band.to ?? Infinity;
      let lane = free.findIndex((one) => one.end <= band.from);
      if (lane < 0) lane = free.push({ end: 0, bands: [] }) - 1;
      free[lane].bands.push(band);
      free[lane].end = to;
    }
    return [waves, ...free.slice(0, LANES).map((lane) => lane.bands)].map((bands) => bands.map((band) => bandElement(band, range)).filter(Boolean))
      .filter((elements) => elements.length > 0)
      .map((elements, index) => make('div', { class: 'row lane' }, make('div', { class: 'label' }, index === 0 ? plan.name : ''), make('div', { class: 'plot' }, ...elements)));
  }

  /** Where a window opens between times in which it is closed. Many say by themselves when. */
  function openings(closed, range) {
    const gaps = closed.flatMap((band) => {
      const next = closed.find((one) => one.plan === band.plan && one.label === band.label && one.from > band.from);
      return next && next.from > band.to && band.to > range[0] && band.to < range[1] ? [[band.to, next.from]] : [];
    });
    return gaps.map(([from, to]) => put(make('div', { class: place(from, range) > 0.5 ? 'opening late' : 'opening' }, gaps.length > 8 ? '' : make('span', {}, `opens ${clock(from, 'date time')} for ${duration(to - from)}`)), from, to, range));
  }

  function chart(name, rows, plans, until, range, width) {
    const points = series(rows, plans);
    const closed = name === 'before' ? [] : state.bands.filter((band) => band.kind === 'closed');
    const marks = failureMarks(rows, range, width);
    const room = marks.length ? ROOM : 0;
    const svg = draw('svg', { class: 'chart', viewBox: `0 ${-room} ${width} ${HEIGHT + room}`, width: '100%', height: HEIGHT + room, preserveAspectRatio: 'none', role: 'img',
      'aria-label': `Nodes by state over time${name ? ` ${name}` : ''}. At the start: ${counted(points[0].counts)}. At the end: ${counted(points.at(-1).counts)}.` },
    ...areas(points, range, width, HEIGHT, until), ...marks);
    const plot = make('div', { class: 'plot zoomable' }, ...closed.map((band) => bandElement(band, range)).filter(Boolean), svg, ...openings(closed, range), ...grid(range, width));
    plot.points = points;
    const total = STATES.reduce((sum, one) => sum + points[0].counts[one], 0);
    const label = make('div', { class: 'label scale' }, make('span', {}, name ? `${name}: ${many(total, 'node')}` : many(total, 'node')), make('span', {}, '0'));
    return make('div', { class: 'row chart-row' }, label, plot);
  }

  function renderCharts() {
    const range = bounds();
    const box = by('charts');
    const width = Math.max(200, (by('axis').clientWidth || box.clientWidth - 200));
    const rows = [...state.rows.values()];
    const made = state.plans.flatMap((plan) => lanes(plan, range));
    if (state.before) made.push(chart('before', state.before.rows, state.before.plans, seconds(state.before.now), range, width));
    made.push(chart(state.before ? 'after' : '', rows, state.plans, seconds(state.now), range, width));
    made.push(make('div', { class: 'row axis', 'aria-hidden': 'true' }, make('div', { class: 'label' }, zone()), make('div', { class: 'plot' }, ...axis(range, width))));
    box.replaceChildren(...made);
    by('axis').replaceChildren(...axis(range, width));
    const lane = by('chain-lane');
    lane.replaceChildren(...state.chain.map((link) => {
      const element = put(make('div', { class: `band ${link.nodes.length ? 'work' : 'wait'}`, title: link.text }, link.label), link.from, link.to, range);
      return link.to < range[0] || link.from > range[1] ? '' : element;
    }).filter(Boolean));
    document.documentElement.dataset.closed = state.bands.some((band) => band.kind === 'closed');
    by('zoom').querySelector('[data-zoom="reset"]').disabled = !state.view;
  }

  /** The colours, each with a pattern of its own, so that they differ without colours. */
  function legend() {
    const shapes = {
      waiting: 'M-1,7 7,-1 M3,11 11,3', failed: 'M0,0 8,8 M8,0 0,8', draining: 'M2,0 V8 M6,0 V8', rebooting: 'M0,2 H3 M4,6 H7', preparing: 'M0,3 H8 M0,7 H8', settling: 'M2,2 h.1 M6,6 h.1',
    };
    const patterns = STATES.map((name) => draw('pattern', { id: `p-${name}`, width: 8, height: 8, patternUnits: 'userSpaceOnUse' },
      draw('rect', { class: `fill ${name}`, width: 8, height: 8 }), draw('path', { class: `stroke ${name}`, d: shapes[name] || '' })));
    const swatch = (name) => draw('svg', { width: 16, height: 12, 'aria-hidden': 'true' }, draw('rect', { fill: `url(#p-${name})`, width: 16, height: 12 }));
    by('legend').replaceChildren(...STATES.toReversed().map((name) => make('li', {}, swatch(name), name)), make('li', { class: 'closed-key' }, make('span', { class: 'swatch closed' }), 'no window open, or blackout'));
    by('legend').before(draw('svg', { width: 0, height: 0, 'aria-hidden': 'true', class: 'patterns' }, draw('defs', {}, ...patterns)));
  }
