// Links that a user presses with a key held, or with the middle button: browsers open those in a window in spite of the sandbox.
// Firefox connects to them where the button goes down, so ADDRESS is one there that notes a connection, in Chromium one that notes
// requests: any press in a frame, on a link or not, lets it connect where Connection-Allowlist is missing, as here.
// Each link covers its frame. They hide from whoever looks for a link, or become one late.
(() => {
  const BLOCK = '<div style="height:60px;background:red"></div>';
  return {
    plain: `document.body.innerHTML = '<a href="' + ADDRESS + '">${BLOCK}</a>'`,
    svg: `document.body.innerHTML = '<svg width=300 height=60><a xlink:href="' + ADDRESS + '"><rect width=300 height=60 /></a></svg>'`,
    area: `document.body.innerHTML = '<img usemap=#m width=300 height=60 src="data:image/gif;base64,R0lGODlhAQABAAAAACw="><map name=m><area href="' + ADDRESS + '" shape=rect coords="0,0,300,60"></map>'`,
    closed_shadow: `add('div', {}, document.body).attachShadow({mode: 'closed'}).innerHTML = '<a href="' + ADDRESS + '">${BLOCK}</a>'`,
    use: `document.body.innerHTML = '<svg width=300 height=60><defs><g id=g><a href="' + ADDRESS + '"><rect width=300 height=60 /></a></g></defs><use href="#g"/></svg>'`,
    mathematics: `const m = document.createElementNS('http://www.w3.org/1998/Math/MathML', 'mtext'); m.setAttribute('href', ADDRESS); m.textContent = 'XXXXXXXXX'; m.style.fontSize = '60px'; document.body.append(m)`,
    late_address: `document.body.innerHTML = '<a>${BLOCK}</a>'; for (const type of ['mousedown', 'click', 'auxclick']) addEventListener(type, () => { document.querySelector('a').href = ADDRESS }, true)`,
    form: `document.body.innerHTML = '<form target=_blank action="' + ADDRESS + '"><button style="height:60px;width:300px">x</button></form>'`,
    moved_button: `const b = add('button', {style: 'height:60px;width:300px'}, document.body), box = document.createElement('div'); box.innerHTML = '<a href="' + ADDRESS + '"></a>'; addEventListener('keypress', () => box.firstChild.append(b), true)`,
    taken_listener: `let taken; HTMLAnchorElement.prototype.addEventListener = (type, heard) => { taken = heard }; document.createElement('a'); removeEventListener('click', taken, true); document.body.innerHTML = '<a href="' + ADDRESS + '">${BLOCK}</a>'`,
    replaced_methods: `WeakSet.prototype.has = () => true; Element.prototype.getAttribute = () => null; Event.prototype.composedPath = () => []; Event.prototype.preventDefault = () => {}; Object.defineProperty(Element, Symbol.hasInstance, {value: () => false}); document.body.innerHTML = '<a href="' + ADDRESS + '">${BLOCK}</a>'`,
  };
})()
