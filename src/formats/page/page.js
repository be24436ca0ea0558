  // The page as a whole, and where its data are from.

  const ICONS = { good: '✓', running: '▶', held: '‖', bad: '✕' };
  let drawing = 0;

  function take(message) {
    if (message.reset) {
      state.rows.clear();
      elements.clear();
    }
    for (const row of message.rows || []) {
      row.key = `${row.plan}/${row.node}`;
      row.changed = true;
      state.rows.set(row.key, row);
    }
    for (const field of ['source', 'title', 'zone', 'remarks', 'notes', 'figures', 'plans', 'bands', 'chain', 'failures', 'versions', 'changes', 'before', 'start', 'now']) {
      if (message[field] !== undefined) state[field] = message[field];
    }
    // What may go away again.
    if (message.plans) state.verdict = message.verdict;
    if (message.before) state.before.byKey = new Map(message.before.rows.map((row) => [`${row.plan}/${row.node}`, row]));
    state.stale = message.stale;
    // Messages that come together are drawn together.
    drawing ||= setTimeout(() => { drawing = 0; render(); }, 50);
  }

  const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

  function heldOf(plan) {
    const { reason, message, remedy, commands: lines } = plan.held;
    return make('div', { class: 'held' }, make('p', {}, make('strong', {}, message.includes(reason) ? `Plan ${plan.name} ` : `Plan ${plan.name}: ${reason}: `), ...prose(message)), remedy ? make('p', {}, 'Remedy: ', ...prose(remedy)) : null,
      lines ? make('ul', { class: 'commands' }, ...lines.map((line) => make('li', {}, make('code', {}, line)))) : null);
  }

  function renderBanner() {
    const { verdict } = state;
    by('banner').hidden = !verdict;
    if (verdict) {
      by('banner').className = verdict.mood;
      by('icon').textContent = ICONS[verdict.mood];
      if (by('headline').textContent !== capital(verdict.headline)) by('headline').textContent = capital(verdict.headline);
      const held = state.plans.filter((plan) => plan.held);
      const line = verdict.line !== verdict.headline && held.length === 0 ? [make('p', {}, ...prose(capital(verdict.line)))] : [];
      by('why').hidden = held.length + line.length === 0;
      by('line').replaceChildren(...line, ...held.map(heldOf));
    }
    by('empty').hidden = state.plans.length > 0;
    by('empty').replaceChildren(...prose('There are no Plans. Next: `refit example k3s-upgrade > plan.yaml`, edit it, try it with `refit rehearse plan.yaml --snapshot context`, then `kubectl apply -f plan.yaml`.'));
  }

  function renderFigures() {
    const sum = (of) => state.plans.reduce((all, plan) => all + plan[of], 0);
    const { mostDown, allowed, controlPlane, seconds: took, ends, evicted } = state.figures;
    const now = seconds(state.now);
    const isRehearsal = state.source === 'rehearsal';
    const figures = [[`${sum('done')} of ${sum('selected')}`, 'nodes done']];
    if (sum('applying')) figures.push([sum('applying'), 'in progress']);
    figures.push([sum('failed'), 'failed', sum('failed') ? 'bad' : ''], [sum('waiting'), 'waiting', sum('waiting') && state.verdict?.mood === 'held' ? 'held' : '']);
    if (mostDown !== undefined) figures.push([mostDown, `most nodes down at once${allowed === undefined ? '' : `; ${allowed} allowed`}`, allowed !== undefined && mostDown > allowed ? 'bad' : '']);
    if (controlPlane) figures.push([`${controlPlane[0]} of ${controlPlane[1]}`, 'of the control plane down at once', controlPlane[0] > 1 ? 'held' : '']);
    if (took) figures.push([duration(took), isRehearsal ? (ends ? 'duration' : 'until it stops') : 'so far']);
    if (ends && isRehearsal) figures.push([clock(ends[1], 'time'), `end, ${clock(ends[1], 'date')}, ${zone()}`]);
    if (ends && !isRehearsal && sum('done') < sum('selected')) {
      const [earliest, latest] = ends.map((end) => duration(end - now > 10 * MINUTE ? Math.round((end - now) / MINUTE) * MINUTE : end - now));
      figures.push([`in ${earliest === latest ? latest : `${earliest} to ${latest}`}`, `expected end, ${clock(ends[1], 'time')} ${zone()} at the latest`]);
    }
    if (evicted) figures.push([evicted, 'pods evicted']);
    by('figures').replaceChildren(...(state.plans.length ? figures : []).map(([value, label, mood]) => make('li', { class: mood || null }, make('strong', {}, String(value)), make('span', {}, label))));
  }

  function planCard(plan) {
    const said = `${plan.done} of ${plan.selected} done${plan.failed ? `, ${plan.failed} failed` : ''}${plan.applying ? `, ${plan.applying} in progress` : ''}${plan.waiting ? `, ${plan.waiting} waiting` : ''}`;
    return make('div', { class: 'card' }, make('h3', {}, plan.name), make('p', {}, make('span', { class: `state ${plan.state}` }, plan.state), ' ', make('span', { class: 'version' }, plan.version || 'no version yet')),
      make('progress', { max: Math.max(1, plan.selected), value: plan.done, 'aria-label': `${plan.name}: ${said}` }), make('p', {}, said), plan.held ? make('p', { class: 'dim' }, plan.held.reason) : null);
  }

  function renderTables() {
    list('remarks', state.remarks.map(prose));
    list('failures', state.failures.map((group) => [make('strong', {}, `${group.reason} on ${group.nodes.length === 1 ? group.nodes[0] : many(group.nodes.length, 'node')}`), ` of Plan ${group.plan}: `, ...prose(group.message),
      group.nodes.length > 1 ? make('div', { class: 'dim' }, `${group.nodes.slice(0, 8).join(', ')}${group.nodes.length > 8 ? ` and ${group.nodes.length - 8} more` : ''}`) : null, make('div', {}, ...prose(`${group.remedy ? `Remedy: ${group.remedy}. Then ` : 'Once repaired: '}\`refit retry ${group.plan}\``))].filter(Boolean)));
    const same = state.before ? [['Nothing that matters: the roll-outs are alike.']] : [];
    list('changes', state.changes.length ? state.changes.map((change) => prose(`${capital(change.what)}: ${change.new}; before: ${change.old}`)) : same);
    by('key').textContent = [state.chain.length && 'Underlined: nodes of the chain that decides the length.', state.before && 'The line above a bar: before the change.'].filter(Boolean).join(' ');
    list('chain', state.chain.map((link) => prose(capital(link.text))));
    by('plans').hidden = state.plans.length === 0;
    by('plans').querySelector('.cards').replaceChildren(...state.plans.map(planCard));
    fill('waits', state.plans.flatMap((plan) => (plan.waits || []).map((wait) => [head(plan.name), cell(wait.reason), number(`${wait.isOver ? '' : 'since '}${duration(wait.seconds)}`), number(wait.nodes ?? 'Plan'), make('td', {}, ...prose(wait.message))])));
    const all = state.versions.reduce((sum, version) => sum + version.nodes, 0);
    fill('fleet', state.versions.map((version) => [make('th', { scope: 'row', class: 'version' }, version.version), number(version.nodes),
      cell(make('progress', { max: all, value: version.nodes, 'aria-label': `${version.nodes} of ${all} nodes run ${version.version}` }))]));
    fill('history', state.plans.flatMap((plan) => (plan.history || []).map((entry) => [head(plan.name), cell(entry.version, { class: 'version' }), cell(fullTime(seconds(entry.from))),
      cell(entry.to ? fullTime(seconds(entry.to)) : ''), cell(entry.complete === true ? 'complete' : entry.complete === false ? 'replaced' : 'running'), number(entry.nodes), number(entry.failures)])));
    by('notes').hidden = state.notes.length === 0;
    by('notes').querySelector('ul').replaceChildren(...state.notes.map((note) => make('li', {}, ...prose(note))));
  }

  function renderChoice() {
    const choice = by('filter-plan');
    const names = state.plans.map((plan) => plan.name);
    choice.closest('label').hidden = names.length < 2;
    if (names.join('\n') === [...choice.options].slice(1).map((option) => option.value).join('\n')) return;
    const chosen = choice.value;
    choice.replaceChildren(make('option', { value: '' }, 'all'), ...names.map((name) => make('option', { value: name }, name)));
    if (names.includes(chosen)) choice.value = chosen;
  }

  function render() {
    document.title = state.title;
    by('title').textContent = state.title;
    // Before widths are measured.
    by('timeline').hidden = state.plans.length === 0;
    by('nodes').hidden = state.rows.size === 0;
    renderBanner();
    renderFigures();
    renderTables();
    renderChoice();
    renderCharts();
    renderRows();
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
    if (by('connection').textContent !== message) by('connection').textContent = message;
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
        tell(state.stale || `Live, ${shortTime(seconds(state.now), 1)} ${zone()}`);
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
  for (const id of ['filter-plan', 'filter-state', 'filter-node']) by(id).addEventListener('input', renderRows);
  let resized = 0;
  addEventListener('resize', () => { clearTimeout(resized); resized = setTimeout(render, 100); });
  legend();
  watchRows();
  watchCharts();
  const data = JSON.parse(by('data').textContent);
  if (data) { take(data); render(); } else live();
