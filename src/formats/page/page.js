'use strict';
(() => {
  // The colour of each phase. Colours never stand alone: every bar has a title and a description in words.
  const STEPS = {
  Waiting: 'wait',
  Pending: 'start',
  Starting: 'start',
  Preparing: 'prepare',
  Cordoning: 'drain',
  Draining: 'drain',
  Upgrading: 'upgrade',
  Finishing: 'upgrade',
  Rebooting: 'reboot',
  Settling: 'settle',
  Verifying: 'settle',
  Failed: 'failed',
  };
  const LEGEND = ['wait', 'start', 'prepare', 'drain', 'upgrade', 'reboot', 'settle', 'failed'];
  // Rows in the page at first, and more with each press of the button: a browser lays out so many at once.
  const BATCH = 200;
  const SVG = 'http://www.w3.org/2000/svg';
  // Width of a timeline in its own units; SVG scales it.
  const WIDTH = 1000;

  const by = (id) => document.getElementById(id);
  const text = (value) => document.createTextNode(value);

  function make(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value !== undefined && value !== null) made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== undefined && child !== null));
    return made;
  }

  function draw(name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  function duration(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    const [d, h, m, s] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
    if (d) return `${d}d ${h}h`;
    if (h) return `${h}h ${m}m`;
    if (m) return s ? `${m}m ${s}s` : `${m}m`;
    return `${s}s`;
  }

  // A time of a rehearsal is virtual, so it is shown in UTC like the rehearsal's own; that of a cluster as on this machine.
  function clock(seconds) {
    const at = new Date(seconds * 1000);
    if (state.source !== 'rehearsal') return at.toLocaleString(undefined, { dateStyle: 'short', timeStyle: 'short' });
    return `${at.toISOString().slice(5, 16).replace('T', ' ')} UTC`;
  }

  const seconds = (timestamp) => Date.parse(timestamp) / 1000;

  const state = { source: 'cluster', title: 'Roll-outs', notes: [], plans: [], versions: [], changes: [], rows: new Map(), shown: BATCH };
  const elements = new Map();
  let drawing = 0;

  function take(message) {
    if (message.reset) {
      state.rows.clear();
      elements.clear();
      by('rows').tBodies[0].replaceChildren();
    }
    for (const row of message.rows || []) {
      row.key = `${row.plan}/${row.node}`;
      row.changed = true;
      state.rows.set(row.key, row);
    }
    for (const field of ['source', 'title', 'verdict', 'notes', 'plans', 'versions', 'changes', 'start', 'now']) {
      if (message[field] !== undefined) state[field] = message[field];
    }
    state.stale = message.stale;
    // Messages that come together are drawn together.
    drawing ||= setTimeout(() => { drawing = 0; render(); }, 50);
  }

  function fill(id, rows) {
    const section = by(id);
    section.hidden = rows.length === 0;
    section.querySelector('tbody').replaceChildren(...rows.map((cells) => make('tr', {}, ...cells)));
  }

  const cell = (value, attributes) => make('td', attributes, value instanceof Node ? value : text(value ?? ''));
  const number = (value) => cell(String(value), { class: 'number' });
  const head = (value) => make('th', { scope: 'row' }, text(value));

  function planRow(plan) {
    const said = `${plan.done} of ${plan.selected} done` + [['applying', plan.applying], ['failed', plan.failed], ['waiting', plan.waiting]]
      .filter(([, count]) => count > 0).map(([word, count]) => `, ${count} ${word}`).join('');
    const bar = make('progress', { max: Math.max(1, plan.selected), value: plan.done, 'aria-label': `${plan.name}: ${said}` });
    const held = make('div');
    if (plan.held) {
      held.append(make('strong', {}, text(plan.held.reason)), text(`: ${plan.held.message}`));
      if (plan.held.remedy) held.append(make('div', { class: 'remedy' }, text(plan.held.remedy)));
    }
    const end = plan.expectedEnd ? `${clock(seconds(plan.expectedEnd.earliest))} to ${clock(seconds(plan.expectedEnd.latest))}` : '';
    return [head(plan.name), cell(plan.version || 'none yet'), cell(plan.state, { class: `state-${plan.state}` }),
      make('td', {}, bar, text(` ${said}`)), cell(held), cell(end)];
  }

  function bounds() {
    let first = Infinity;
    let last = -Infinity;
    const now = seconds(state.now);
    for (const row of state.rows.values()) {
      for (const span of row.spans) {
        first = Math.min(first, span.from);
        last = Math.max(last, span.to ?? now);
      }
    }
    if (first > last) return [now - 1, now];
    // Rounded up, so that the axis moves, and every row is drawn again, some times in a roll-out and not each second.
    const unit = 2 ** Math.ceil(Math.log2(Math.max(last - first, 1) / 32));
    return [first, state.source === 'rehearsal' ? Math.max(last, first + 1) : first + unit * Math.ceil((last - first + 1) / unit)];
  }

  // How long a row took: its phases without waits for a turn.
  function took(row, now) {
    const worked = row.spans.filter((span) => span.phase !== 'Waiting');
    if (worked.length === 0) return '';
    const last = worked[worked.length - 1];
    return duration((last.to ?? now) - worked[0].from);
  }

  function spanText(span, now) {
    const why = [span.reason, span.message].filter(Boolean).join(': ');
    return `${span.phase} ${duration((span.to ?? now) - span.from)}${why ? ` (${why})` : ''}`;
  }

  function bar(row, [first, last], now) {
    const scale = WIDTH / (last - first);
    const said = row.spans.map((span) => spanText(span, now)).join(', ') || 'nothing yet';
    const svg = draw('svg', { viewBox: `0 0 ${WIDTH} 18`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${row.node}: ${said}` });
    for (const span of row.spans) {
      const from = (span.from - first) * scale;
      const rect = draw('rect', {
        class: STEPS[span.phase] || 'start', x: from.toFixed(2), y: span.phase === 'Waiting' ? 6 : 1,
        width: Math.max(1.5, ((span.to ?? now) - span.from) * scale).toFixed(2), height: span.phase === 'Waiting' ? 6 : 16,
      });
      const title = draw('title', {});
      title.textContent = `${spanText(span, now)}, from ${clock(span.from)}`;
      rect.append(title);
      svg.append(rect);
    }
    return svg;
  }

  function rowElement(row, range, now) {
    const why = [row.reason, row.message].filter(Boolean).join(': ');
    const said = make('td', { class: `state-${row.state}` }, text(row.state));
    if (why) said.append(make('div', { class: 'message' }, text(why)));
    return make('tr', {}, head(row.node), cell(row.plan), said, cell(bar(row, range, now)), cell(took(row, now), { class: 'number' }));
  }

  function selected() {
    const plan = by('filter-plan').value;
    const phase = by('filter-state').value;
    const name = by('filter-node').value.trim().toLowerCase();
    const rows = [...state.rows.values()].filter((row) => (!plan || row.plan === plan) && (!phase || row.state === phase) && (!name || row.node.toLowerCase().includes(name)));
    const start = (row) => row.spans.find((span) => span.phase !== 'Waiting')?.from ?? Infinity;
    return rows.map((row) => [start(row), row]).sort(([x, a], [y, b]) => (x < y ? -1 : x > y ? 1 : a.key < b.key ? -1 : 1)).map(([, row]) => row);
  }

  let drawn = '';

  function renderRows() {
    const now = seconds(state.now);
    const range = bounds();
    const rows = selected();
    const shown = rows.slice(0, state.shown);
    const scale = range.join();
    const body = by('rows').tBodies[0];
    // A row is drawn again if it has changed, has grown so that one can see it, or the axis moved.
    const wanted = shown.map((row) => {
      const isOpen = row.spans.some((span) => span.to === undefined);
      let element = elements.get(row.key);
      const hasGrown = isOpen && now - row.drawnAt > (range[1] - range[0]) / WIDTH;
      if (!element || row.changed || hasGrown || scale !== drawn) {
        const fresh = rowElement(row, range, now);
        if (element && element.isConnected) element.replaceWith(fresh);
        element = fresh;
        elements.set(row.key, element);
        row.changed = false;
        row.drawnAt = now;
      }
      return element;
    });
    drawn = scale;
    const keep = new Set(wanted);
    for (const child of [...body.children]) if (!keep.has(child)) child.remove();
    wanted.forEach((element, index) => {
      if (body.children[index] !== element) body.insertBefore(element, body.children[index] || null);
    });
    for (const [key, element] of elements) if (!keep.has(element)) elements.delete(key);
    by('timeline').hidden = state.rows.size === 0;
    by('shown').textContent = `${shown.length} of ${rows.length} rows`;
    by('more').hidden = rows.length <= shown.length;
    by('axis').replaceChildren(...[0, 1, 2].map((part) => make('span', {}, text(clock(range[0] + (range[1] - range[0]) * part / 2)))));
  }

  function renderChoice() {
    const choice = by('filter-plan');
    const names = state.plans.map((plan) => plan.name);
    if (names.join('\n') === [...choice.options].slice(1).map((option) => option.value).join('\n')) return;
    const chosen = choice.value;
    choice.replaceChildren(make('option', { value: '' }, text('all')), ...names.map((name) => make('option', { value: name }, text(name))));
    if (names.includes(chosen)) choice.value = chosen;
  }

  function render() {
    document.title = state.title;
    document.documentElement.dataset.source = state.source;
    by('title').textContent = state.title;
    if (state.verdict) by('summary').textContent = state.verdict.line;
    by('plans').querySelector('tbody').replaceChildren(...state.plans.map((plan) => make('tr', {}, ...planRow(plan))));
    if (state.plans.length === 0) {
      by('plans').querySelector('tbody').append(make('tr', {}, make('td', { colspan: 6 }, text('There are no Plans.'))));
    }
    fill('changes', state.changes.map((change) => [head(change.what), cell(change.old), cell(change.new)]));
    fill('waits', state.plans.flatMap((plan) => (plan.waits || []).map((wait) => [head(plan.name), cell(wait.reason), number(`${wait.isOver ? '' : 'since '}${duration(wait.seconds)}`), number(wait.nodes ?? 'Plan'), cell(wait.message)])));
    const all = state.versions.reduce((sum, version) => sum + version.nodes, 0);
    fill('fleet', state.versions.map((version) => [head(version.version), number(version.nodes),
      cell(make('progress', { max: all, value: version.nodes, 'aria-label': `${version.nodes} of ${all} nodes run ${version.version}` }))]));
    fill('history', state.plans.flatMap((plan) => (plan.history || []).map((entry) => [head(plan.name), cell(entry.version), cell(clock(seconds(entry.from))),
      cell(entry.to ? clock(seconds(entry.to)) : ''), cell(entry.complete === true ? 'complete' : entry.complete === false ? 'replaced' : 'running'), number(entry.nodes), number(entry.failures)])));
    by('notes').hidden = state.notes.length === 0;
    by('notes').querySelector('ul').replaceChildren(...state.notes.map((note) => make('li', {}, text(note))));
    renderChoice();
    renderRows();
  }

  function legend() {
    by('legend').replaceChildren(...LEGEND.map((step) => {
      const svg = draw('svg', { width: 12, height: 12, 'aria-hidden': 'true' });
      svg.append(draw('rect', { class: step, width: 12, height: 12 }));
      return make('li', {}, svg, text(step));
    }));
  }

  function theme(name) {
    document.documentElement.dataset.theme = name;
    by('theme').textContent = name === 'dark' ? 'Light' : 'Dark';
    by('theme').setAttribute('aria-label', `Use the ${name === 'dark' ? 'light' : 'dark'} theme`);
  }

  // Storage may be forbidden, as for a file.
  function remembered(key) {
    try { return sessionStorage.getItem(key); } catch { return null; }
  }

  function remember(key, value) {
    try { sessionStorage.setItem(key, value); } catch { /* The theme is that of the system again. */ }
  }

  let delay = 500;

  function tell(message) {
    if (by('summary').textContent !== message) by('summary').textContent = message;
  }

  // Server-sent events, read with fetch because an EventSource does not say why it has none.
  async function follow() {
    const response = await fetch('events', { cache: 'no-store' });
    if (!response.ok) throw new Error((await response.text()).trim() || `status ${response.status}`);
    delay = 500;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let pending = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      pending += value;
      const frames = pending.split('\n\n');
      pending = frames.pop();
      for (const frame of frames) {
        const data = frame.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n');
        if (!data) continue;
        take(JSON.parse(data));
        tell(state.stale || `Live, ${clock(seconds(state.now))}`);
      }
    }
  }

  async function live() {
    for (;;) {
      try {
        await follow();
      } catch (error) {
        tell(`Not connected (${error.message || error}); trying again`);
      }
      await new Promise((resolve) => setTimeout(resolve, delay));
      delay = Math.min(delay * 2, 15000);
    }
  }

  theme(remembered('theme') || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
  by('theme').addEventListener('click', () => {
    const next = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    remember('theme', next);
    theme(next);
  });
  for (const id of ['filter-plan', 'filter-state', 'filter-node']) {
    by(id).addEventListener('input', () => { state.shown = BATCH; renderRows(); });
  }
  by('more').addEventListener('click', () => { state.shown += BATCH; renderRows(); });
  // A printed page has all rows.
  addEventListener('beforeprint', () => { state.shown = Infinity; renderRows(); });
  legend();
  const data = JSON.parse(by('data').textContent);
  if (data) { take(data); render(); } else live();
})();
