  // The nodes: a row each while they are few, otherwise groups that unfold.

  // Rows that are shown without being asked for.
  const FEW = 60;
  // Rows of a group at first, and more with each press of the button: a browser lays out so many at once.
  const BATCH = 200;
  // Zones are groups if they have so many nodes each.
  const MIN_ZONE = 3;

  const elements = new Map();
  /** Groups that were folded or unfolded by hand, and how many rows they have. */
  const folds = new Map();
  let drawn = '';

  const started = (row) => row.spans.find((span) => span.phase !== 'Waiting')?.from ?? Infinity;
  const URGENT = { failed: 0, waiting: 1, applying: 2, released: 2, done: 2 };
  const compare = (a, b) => URGENT[a.state] - URGENT[b.state] || started(a) - started(b) || (a.key < b.key ? -1 : 1);

  function selected() {
    const plan = by('filter-plan').value;
    const phase = by('filter-state').value;
    const name = by('filter-node').value.trim().toLowerCase();
    return [...state.rows.values()].filter((row) => (!plan || row.plan === plan) && (!phase || row.state === phase) && (!name || row.node.toLowerCase().includes(name)));
  }

  /** Rows by Plan and wave, and by zone where that says more. Groups with failed nodes come first, then those with waiting ones. */
  function grouped(all) {
    // Those that failed are not hidden in groups.
    const failed = all.length > FEW ? all.filter((row) => row.state === 'failed') : [];
    const first = failed.length ? [{ key: 'failed', name: 'Failed', rows: failed.sort(compare), isOpen: failed.length <= FEW }] : [];
    const rows = failed.length ? all.filter((row) => row.state !== 'failed') : all;
    const waves = Map.groupBy(rows, (row) => `${row.plan}\n${row.wave || ''}`);
    const groups = [...waves].flatMap(([key, some]) => {
      const zones = Map.groupBy(some, (row) => row.zone || '');
      const split = zones.size > 1 && some.length >= MIN_ZONE * zones.size ? [...zones] : [['', some]];
      const [plan, wave] = key.split('\n');
      return split.map(([place, members]) => ({ key: `${key}\n${place}`, name: [state.plans.length > 1 || !wave ? plan : '', wave && `wave ${wave}`, place].filter(Boolean).join(' · '), rows: members.sort(compare) }));
    });
    return [...first, ...groups.sort((a, b) => compare(a.rows[0], b.rows[0]))];
  }

  function summary(rows) {
    const counts = Map.groupBy(rows, (row) => row.state);
    return ['failed', 'waiting', 'applying', 'released', 'done'].filter((name) => counts.has(name)).map((name) => `${counts.get(name).length} ${name}`).join(' · ');
  }

  function rect(name, from, to, range, y, height) {
    const [left, right] = [place(from, range), place(to, range)];
    if (to < range[0] || from > range[1]) return '';
    return draw('rect', { class: name, fill: `url(#p-${name.split(' ')[0]})`, x: `${(left * 100).toFixed(3)}%`, y, width: `${Math.max(0.1, (right - left) * 100).toFixed(3)}%`, height });
  }

  /** The bar of a row: its phases, what it waited for before and within them, and how it was in the older rehearsal. */
  function track(row, range, now) {
    const phases = row.spans.filter((span) => span.phase !== 'Waiting');
    const first = Math.min(started(row), now);
    const parts = [];
    const waits = state.bands.filter((band) => band.plan === row.plan && band.kind === 'wait' && band.from < first);
    if (phases.length === 0 && row.state === 'waiting') parts.push(rect('waiting', seconds(state.start), now, range, 2, 14));
    else for (const band of waits) parts.push(rect('waiting faint', band.from, Math.min(band.to ?? now, first), range, 5, 8));
    phases.forEach((span, index) => {
      const next = phases[index + 1];
      // A container that fails begins again, as its Job counts.
      const isUpgrade = STEPS[span.phase] === 'upgrading';
      const after = isUpgrade ? phases.slice(index).find((one) => STEPS[one.phase] !== 'upgrading') : next;
      const isAgain = isUpgrade && row.failures > 0 && after && STEPS[after.phase] === 'preparing';
      const hasFailed = isAgain || (after ? after.phase === 'Failed' : row.state === 'failed' && span.phase !== 'Failed');
      parts.push(rect(hasFailed ? 'failed' : STEPS[span.phase] || 'preparing', span.from, span.to ?? now, range, 2, 14));
    });
    for (const span of row.spans) if (span.phase === 'Waiting') parts.push(rect('waiting within', span.from, span.to ?? now, range, 5, 8));
    if (state.chain.some((link) => link.plan === row.plan && link.nodes.includes(row.node))) parts.push(rect('chained', first, phases.at(-1)?.to ?? now, range, 16, 2));
    const old = state.before?.byKey.get(row.key);
    if (old && old.spans.length) parts.push(rect('before', started(old), old.spans.at(-1).to ?? now, range, 0, 2));
    return draw('svg', { class: 'track', width: '100%', height: 18, 'aria-hidden': 'true' }, ...parts.filter(Boolean));
  }

  function rowElement(row, range, width, now) {
    const why = row.reason && row.state !== 'done' ? make('small', {}, row.reason) : null;
    const button = make('button', { type: 'button', class: 'node' }, make('span', { class: `mark ${row.state}`, 'aria-hidden': 'true' }, MARKS[row.state]), make('span', { class: 'name' }, row.node),
      make('span', { class: 'hidden' }, `: ${word(row)}. ${described(row).join(', ')}`), why);
    const element = make('div', { class: `row node-row ${row.state}` }, make('div', { class: 'label' }, button), make('div', { class: 'plot' }, track(row, range, now), ...grid(range, width)));
    element.row = row;
    return element;
  }

  /** The row as it is drawn; it is drawn again if it has changed, has grown so that one can see it, or the axis moved. */
  function cached(row, range, width, now, scale) {
    let element = elements.get(row.key);
    const isOpen = row.state === 'waiting' || row.spans.some((span) => span.to === undefined);
    const hasGrown = isOpen && now - row.drawnAt > (range[1] - range[0]) / width;
    if (!element || row.changed || hasGrown || scale !== drawn) {
      const hadFocus = element && element.contains(document.activeElement);
      const fresh = rowElement(row, range, width, now);
      if (element && element.isConnected) element.replaceWith(fresh);
      if (hadFocus) fresh.querySelector('button').focus();
      element = fresh;
      elements.set(row.key, element);
      [row.changed, row.drawnAt] = [false, now];
    }
    return element;
  }

  function groupHead(group, isOpen, range, width, now) {
    const plans = [{ selected: group.rows.length, done: group.rows.filter((row) => row.state === 'done').length }];
    const strip = draw('svg', { class: 'strip', viewBox: `0 0 ${width} 26`, width: '100%', height: 26, preserveAspectRatio: 'none', 'aria-hidden': 'true' }, ...areas(series(group.rows, plans), range, width, 26, now));
    const button = make('button', { type: 'button', class: 'fold', 'aria-expanded': isOpen, 'data-group': group.key },
      make('span', { 'aria-hidden': 'true' }, isOpen ? '▾' : '▸'), make('span', { class: 'name' }, group.name), make('small', {}, summary(group.rows)));
    return make('div', { class: `row group-head${isOpen ? ' open' : ''}` }, make('div', { class: 'label' }, button), make('div', { class: 'plot' }, isOpen ? '' : strip, ...(isOpen ? [] : grid(range, width))));
  }

  function renderRows() {
    const now = seconds(state.now);
    const range = bounds();
    const width = by('axis').clientWidth || 1000;
    const rows = selected();
    const scale = [...range, width, state.bands.length, state.chain.length].join();
    const focused = document.activeElement?.dataset?.group;
    let shown = 0;
    const wanted = [];
    for (const group of grouped(rows)) {
      const fold = folds.get(group.key) || { isOpen: group.isOpen ?? rows.length <= FEW, shown: BATCH };
      wanted.push(groupHead(group, fold.isOpen, range, width, now));
      if (!fold.isOpen) continue;
      const open = group.rows.slice(0, fold.shown);
      shown += open.length;
      wanted.push(...open.map((row) => cached(row, range, width, now, scale)));
      if (group.rows.length > open.length) wanted.push(make('button', { type: 'button', class: 'more', 'data-more': group.key }, `Show ${Math.min(BATCH, group.rows.length - open.length)} more of ${group.rows.length}`));
    }
    drawn = scale;
    const keep = new Set(wanted);
    for (const [key, element] of elements) if (!keep.has(element)) elements.delete(key);
    by('groups').replaceChildren(...wanted);
    if (focused) by('groups').querySelector(`[data-group="${CSS.escape(focused)}"]`)?.focus();
    by('nodes').hidden = state.rows.size === 0;
    by('shown').textContent = shown === rows.length && rows.length === state.rows.size ? '' : `${shown} of ${many(rows.length, 'row')} shown; the others are in the groups.`;
  }

  function toggle(target) {
    const key = target.dataset.group ?? target.dataset.more;
    const fold = folds.get(key) || { isOpen: target.getAttribute('aria-expanded') !== 'false', shown: BATCH };
    folds.set(key, target.dataset.more !== undefined ? { isOpen: true, shown: fold.shown + BATCH } : { ...fold, isOpen: !fold.isOpen });
    renderRows();
  }
