  // What is known of one node: a box beside the pointer or the focus, and a dialog.

  /** A row in words: phases with their times, evictions, boots. */
  function described(row) {
    const now = seconds(state.now);
    const phases = row.spans.map((span) => `${span.phase === 'Waiting' ? span.reason : span.phase} ${duration((span.to ?? now) - span.from)}`);
    const others = [row.evicted && `${many(row.evicted, 'pod')} evicted`, row.boots && many(row.boots, 'boot'), row.failures && many(row.failures, 'failed attempt'), row.reason && [row.reason, row.message].filter(Boolean).join(': ')];
    return [...phases, ...others.filter(Boolean)];
  }

  function phaseTable(row) {
    const now = seconds(state.now);
    const rows = row.spans.map((span) => make('tr', {}, head(span.phase), cell(fullTime(span.from)), number(`${duration((span.to ?? now) - span.from)}${span.to === undefined ? ' so far' : ''}`),
      make('td', {}, ...prose([span.reason, span.message].filter(Boolean).join(': ')))));
    return make('table', {}, make('thead', {}, make('tr', {}, ...['phase', 'from', 'took', 'why'].map((name) => make('th', { scope: 'col' }, name)))), make('tbody', {}, ...rows));
  }

  const facts = (row) => [`Plan ${row.plan}`, row.wave && `wave ${row.wave}`, row.zone, row.evicted && `${many(row.evicted, 'pod')} evicted`, row.boots && many(row.boots, 'boot'), row.failures && many(row.failures, 'failed attempt')].filter(Boolean).join(' · ');

  function commands(row) {
    const target = `${row.plan} ${row.node}`;
    const all = [['explain', 'why, and what to do'], ['logs', 'what its pods printed']];
    if (row.state === 'failed') all.push(['retry', 'try again'], ['skip', 'go on without it']);
    if (row.state === 'applying') all.push(['abort', 'give up']);
    return make('ul', { class: 'commands' }, ...all.map(([name, what]) => make('li', {}, make('code', {}, name === 'abort' ? `refit abort ${row.plan}` : `refit ${name} ${target}`), ` ${what}`)));
  }

  function showTip(content, left, top) {
    const tip = by('tip');
    tip.replaceChildren(...content);
    tip.hidden = false;
    tip.style.left = `${Math.max(4, Math.min(left + 14, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${top + 18 + tip.offsetHeight > innerHeight ? Math.max(4, top - tip.offsetHeight - 12) : top + 18}px`;
  }

  const hideTip = () => { by('tip').hidden = true; };

  function rowTip(row, left, top) {
    const why = row.reason ? [make('p', { class: `why ${row.state}` }, ...prose([row.reason, row.message].filter(Boolean).join(': ')))] : [];
    const now = seconds(state.now);
    const list = row.spans.map((span) => make('li', {}, `${shortTime(span.from, 1)} ${span.phase === 'Waiting' ? span.reason : span.phase} ${duration((span.to ?? now) - span.from)}`));
    showTip([make('strong', {}, `${row.node}: ${word(row)}`), make('div', { class: 'dim' }, facts(row)), make('ol', {}, ...list), ...why, make('div', { class: 'dim' }, 'Click for times and commands')], left, top);
  }

  function openDetail(row) {
    hideTip();
    by('detail-title').textContent = `${row.node}: ${word(row)}`;
    const why = row.reason ? [make('p', { class: `why ${row.state}` }, ...prose([row.reason, row.message].filter(Boolean).join(': ')))] : [];
    by('detail-body').replaceChildren(make('p', { class: 'dim' }, facts(row)), ...why, make('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Table: phases' }, phaseTable(row)),
      make('h3', {}, state.source === 'rehearsal' ? 'On the cluster' : 'Commands'), commands(row));
    by('detail').showModal();
  }

  function watchRows() {
    const rowOf = (event) => event.target.closest?.('.node-row')?.row;
    const groups = by('groups');
    groups.addEventListener('pointermove', (event) => { const row = rowOf(event); if (row) rowTip(row, event.clientX, event.clientY); else hideTip(); });
    groups.addEventListener('pointerleave', hideTip);
    groups.addEventListener('focusin', (event) => {
      const row = rowOf(event);
      if (!row || !event.target.matches(':focus-visible')) return;
      const box = event.target.getBoundingClientRect();
      rowTip(row, box.right, box.top);
    });
    groups.addEventListener('focusout', hideTip);
    groups.addEventListener('click', (event) => {
      const button = event.target.closest('[data-group], [data-more]');
      if (button) toggle(button);
      else if (rowOf(event)) openDetail(rowOf(event));
    });
    addEventListener('keydown', (event) => { if (event.key === 'Escape') hideTip(); });
  }

  /** Zooms by dragging over a chart, by buttons and by keys. */
  function watchCharts() {
    const box = by('charts');
    let drag = null;
    const timeAt = (plot, event) => {
      const rect = plot.getBoundingClientRect();
      const [first, last] = bounds();
      return first + Math.min(1, Math.max(0, (event.clientX - rect.left) / rect.width)) * (last - first);
    };
    const set = (from, to) => {
      const [first, last] = whole();
      const length = Math.min(Math.max(to - from, 5), last - first);
      const start = Math.min(Math.max(from, first), last - length);
      state.view = length >= last - first ? null : [start, start + length];
      renderCharts();
      renderRows();
    };
    const zoom = (how) => {
      const [from, to] = bounds();
      const [middle, half] = [(from + to) / 2, (to - from) / 2];
      if (how === 'in') set(middle - half / 2, middle + half / 2);
      if (how === 'out') set(middle - half * 2, middle + half * 2);
      if (how === 'left') set(from - half, to - half);
      if (how === 'right') set(from + half, to + half);
      if (how === 'reset') set(-Infinity, Infinity);
    };
    box.addEventListener('pointerdown', (event) => {
      const plot = event.target.closest('.zoomable');
      if (plot && event.button === 0) drag = { plot, from: timeAt(plot, event), mark: plot.appendChild(make('i', { class: 'drag' })) };
    });
    addEventListener('pointermove', (event) => {
      if (drag) put(drag.mark, Math.min(drag.from, timeAt(drag.plot, event)), Math.max(drag.from, timeAt(drag.plot, event)), bounds());
      const plot = event.target.closest?.('.zoomable');
      if (!plot) { if (!event.target.closest?.('#groups')) hideTip(); return; }
      const at = timeAt(plot, event);
      showTip([make('strong', {}, fullTime(at)), make('div', {}, counted(pointAt(plot.points, at).counts)), make('div', { class: 'dim' }, `${duration(at - seconds(state.start))} after the start`)], event.clientX, event.clientY);
    });
    addEventListener('pointerup', (event) => {
      if (!drag) return;
      const [from, to] = [drag.from, timeAt(drag.plot, event)];
      drag.mark.remove();
      const isDrag = Math.abs(to - from) > (bounds()[1] - bounds()[0]) / 100;
      drag = null;
      if (isDrag) set(Math.min(from, to), Math.max(from, to));
    });
    box.addEventListener('dblclick', () => zoom('reset'));
    by('zoom').addEventListener('click', (event) => { if (event.target.dataset.zoom) zoom(event.target.dataset.zoom); });
    by('timeline').addEventListener('keydown', (event) => {
      const how = { '+': 'in', '-': 'out', ArrowLeft: 'left', ArrowRight: 'right', 0: 'reset' }[event.key];
      if (how) { event.preventDefault(); zoom(how); }
    });
  }
