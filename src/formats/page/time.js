  // Times, and the axis.

  const seconds = (timestamp) => Date.parse(timestamp) / 1000;
  const MINUTE = 60;
  const HOUR = 3600;
  const DAY = 86400;
  const ROUND = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY];

  function duration(length) {
    const whole = Math.max(0, Math.round(length));
    const parts = [[Math.floor(whole / DAY), 'd'], [Math.floor(whole / HOUR) % 24, 'h'], [Math.floor(whole / MINUTE) % 60, 'm'], [whole % 60, 's']];
    const first = parts.findIndex(([value]) => value > 0);
    if (first < 0) return '0s';
    return parts.slice(first, first + 2).filter(([value]) => value > 0).map(([value, unit]) => `${value}${unit}`).join('');
  }

  const zone = () => state.zone || Intl.DateTimeFormat().resolvedOptions().timeZone;
  const formats = new Map();

  /** A time in the one zone of the page, in 24 hours. */
  function clock(at, parts) {
    const key = `${zone()} ${parts}`;
    if (!formats.has(key)) {
      const all = { date: { month: 'short', day: 'numeric' }, time: { hour: '2-digit', minute: '2-digit' }, second: { second: '2-digit' } };
      const chosen = Object.assign({}, ...parts.split(' ').map((part) => all[part]));
      formats.set(key, new Intl.DateTimeFormat('en-GB', { ...chosen, hourCycle: 'h23', timeZone: zone() }));
    }
    return formats.get(key).format(at * 1000);
  }

  const fullTime = (at) => `${clock(at, 'date time second')} ${zone()}`;
  /** A time of the axis: seconds only where they differ. */
  const shortTime = (at, step) => clock(at, step < MINUTE ? 'time second' : 'time');

  /** The whole time, from the first node to the last, or as far as the end is known. */
  function whole() {
    const now = seconds(state.now);
    let first = seconds(state.start);
    let last = Math.max(now, first + 1);
    if (state.source === 'rehearsal') {
      if (state.before) last = Math.max(last, seconds(state.before.now));
      return [first, last];
    }
    for (const row of state.rows.values()) if (row.spans.length > 0) first = Math.min(first, row.spans[0].from);
    // An end that is near is in the picture. Rounded up, so that the axis moves some times in a roll-out, not each second.
    const end = state.figures.ends ? state.figures.ends[1] : now;
    last = Math.min(Math.max(now, end), now + Math.max(now - first, 300));
    const unit = 2 ** Math.ceil(Math.log2(Math.max(last - first, 1) / 32));
    return [first, first + unit * Math.ceil((last - first + 1) / unit)];
  }

  const bounds = () => state.view || whole();

  /** Round times between two, at most so many. */
  function ticks([first, last], most) {
    const step = ROUND.find((one) => (last - first) / one <= most) || ROUND.at(-1);
    // Days begin at midnight of the zone.
    const shift = step < HOUR ? 0 : zoneShift(first);
    const found = [];
    for (let at = Math.ceil((first + shift) / step) * step - shift; at <= last; at += step) found.push(at);
    return { step, found };
  }

  /** Labels that have room. */
  const most = (width) => Math.max(2, width / 110);

  /** How many seconds the zone is ahead of UTC. */
  function zoneShift(at) {
    const parts = new Intl.DateTimeFormat('en-GB', { timeZone: zone(), timeZoneName: 'longOffset' }).formatToParts(at * 1000);
    const found = /([+-])(\d+):(\d+)/.exec(parts.find((part) => part.type === 'timeZoneName').value);
    return found ? (found[1] === '-' ? -1 : 1) * (found[2] * HOUR + found[3] * MINUTE) : 0;
  }

  /** Where a time is in a plot, as a share of its width; outside of the view it is at the edge. */
  function place(at, [first, last]) {
    return Math.min(1, Math.max(0, (at - first) / (last - first)));
  }

  function put(element, from, to, range) {
    const [left, right] = [place(from, range), place(to, range)];
    element.style.left = `${(left * 100).toFixed(3)}%`;
    element.style.width = `${((right - left) * 100).toFixed(3)}%`;
    return element;
  }

  /** What all plots share: gridlines at round times, as one background, and a line for now. */
  function grid(range, width) {
    const { step, found } = ticks(range, most(width));
    const [size, offset] = [step, (found[0] ?? range[1]) - range[0]].map((length) => length / (range[1] - range[0]));
    const lines = make('i', { class: 'grid' });
    lines.style.backgroundSize = `${size * 100}% 100%`;
    lines.style.backgroundPosition = `${size < 1 ? offset / (1 - size) * 100 : 0}% 0`;
    const now = seconds(state.now);
    return state.source !== 'rehearsal' && now < range[1] ? [lines, put(make('i', { class: 'now' }), now, now, range)] : [lines];
  }

  /** Labels of the axis: the date only where it changes, and the zone. */
  function axis(range, width) {
    const { step, found } = ticks(range, most(width));
    let [day, end] = ['', 0];
    return found.map((at) => {
      const date = clock(at, 'date');
      const label = step >= DAY ? date : `${date === day ? '' : `${date}, `}${shortTime(at, step)}`;
      day = date;
      const left = place(at, range) * width;
      const hasRoom = left >= end && left + label.length * 7 < width;
      if (hasRoom) end = left + label.length * 7;
      return hasRoom ? put(make('span', { class: 'tick' }, label), at, at, range) : '';
    }).filter(Boolean);
  }
