  // Elements and words.

  const SVG = 'http://www.w3.org/2000/svg';
  const by = (id) => document.getElementById(id);

  function make(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value !== undefined && value !== null) made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== undefined && child !== null));
    return made;
  }

  function draw(name, attributes, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  /** Text in which what stands between backticks is code. */
  function prose(text) {
    const parts = String(text ?? '').split('`');
    return parts.map((part, index) => (index % 2 && index < parts.length - 1 ? make('code', {}, part) : part));
  }

  const cell = (value, attributes) => make('td', attributes, value instanceof Node ? value : String(value ?? ''));
  const number = (value) => cell(value, { class: 'number' });
  const head = (value) => make('th', { scope: 'row' }, value);
  const many = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;

  /** Shows a section with these rows of its table, or hides it. */
  function fill(id, rows) {
    by(id).hidden = rows.length === 0;
    by(id).querySelector('tbody').replaceChildren(...rows.map((cells) => make('tr', {}, ...cells)));
  }

  /** Shows a section with these items of its list, or hides it. */
  function list(id, items) {
    by(id).hidden = items.length === 0;
    by(id).querySelector('ul, ol').replaceChildren(...items.map((item) => make('li', {}, ...item)));
  }

  // The state in which a node is drawn in each phase.
  const STEPS = {
  Waiting: 'waiting',
  Pending: 'preparing',
  Starting: 'preparing',
  Preparing: 'preparing',
  Cordoning: 'draining',
  Draining: 'draining',
  Upgrading: 'upgrading',
  Finishing: 'upgrading',
  Rebooting: 'rebooting',
  Settling: 'settling',
  Verifying: 'settling',
  Failed: 'failed',
  };
  // From the bottom of the chart to its top.
  const STATES = ['done', 'failed', 'settling', 'rebooting', 'upgrading', 'draining', 'preparing', 'waiting'];
  const MARKS = { done: '✓', failed: '✕', waiting: '…', applying: '▶', released: '↺' };

  const state = {
    source: 'cluster', title: 'Roll-outs', remarks: [], notes: [], plans: [], versions: [], changes: [], bands: [], chain: [], failures: [],
    figures: {}, rows: new Map(), view: null,
  };

  /** The word for a row: that of its phase while it is in progress, as in `refit status`. */
  function word(row) {
    const last = row.spans.findLast((span) => span.phase !== 'Waiting');
    if (row.state === 'applying') return last ? last.phase : 'Pending';
    return row.state[0].toUpperCase() + row.state.slice(1);
  }
