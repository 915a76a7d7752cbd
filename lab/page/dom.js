// Creates elements. Properties that begin with "on" are listeners; texts never become markup.

/** Returns a new element with attributes, listeners and children: nodes or texts. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  setAll(element, properties);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Returns a new element of SVG. */
export function makeSvg(tag, properties = {}) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  setAll(element, properties);
  return element;
}

/** Sets attributes and listeners. `null`, `undefined` and `false` remove an attribute. */
export function setAll(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === null || value === undefined || value === false) {
      element.removeAttribute(name);
    } else element.setAttribute(name, value === true ? '' : String(value));
  }
}

/** Copies a text to the clipboard, and says so on the button for two seconds. */
export async function copy(button, text) {
  const label = button.dataset.label ?? button.textContent;
  button.dataset.label = label;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    // A browser has no clipboard for a page that is neither local nor encrypted.
    button.textContent = 'Cannot copy';
  }
  setTimeout(() => {
    button.textContent = label;
  }, 2000);
}

const probe = make('span', { hidden: true });

/** The colours of the current theme: reading a style during a redraw is slow. */
const colours = new Map();

/** Forgets the colours of a theme. */
export function forgetColours() {
  colours.clear();
}

/** Returns the colour of a CSS variable in the current theme, as red, green and blue. */
export function colour(name) {
  const known = colours.get(name);
  if (known !== undefined) return known;
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(--${name})`;
  const parts = getComputedStyle(probe).color.match(/\d+(\.\d+)?/g).slice(0, 3).map(Number);
  colours.set(name, parts);
  return parts;
}

/** Returns the colour of a CSS variable as text for a canvas. */
export function paint(name) {
  return `rgb(${colour(name).join(', ')})`;
}
