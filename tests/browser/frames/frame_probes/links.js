// Links that a user presses with a key held, or with the middle button: browsers open those in a window in spite of the sandbox.
// Each covers its frame. They hide from whoever looks for a link, or become one late.
(() => {
  const BLOCK = '<div style="height:60px;background:red"></div>';
  return {
    plain: `document.body.innerHTML = '<a href="' + U + '">${BLOCK}</a>'`,
    svg: `document.body.innerHTML = '<svg width=300 height=60><a xlink:href="' + U + '"><rect width=300 height=60 /></a></svg>'`,
    area: `document.body.innerHTML = '<img usemap=#m width=300 height=60 src="data:image/gif;base64,R0lGODlhAQABAAAAACw="><map name=m><area href="' + U + '" shape=rect coords="0,0,300,60"></map>'`,
    closed_shadow: `add('div', {}, document.body).attachShadow({mode: 'closed'}).innerHTML = '<a href="' + U + '">${BLOCK}</a>'`,
    use: `document.body.innerHTML = '<svg width=300 height=60><defs><g id=g><a href="' + U + '"><rect width=300 height=60 /></a></g></defs><use href="#g"/></svg>'`,
    mathematics: `const m = document.createElementNS('http://www.w3.org/1998/Math/MathML', 'mtext'); m.setAttribute('href', U); m.textContent = 'XXXXXXXXX'; m.style.fontSize = '60px'; document.body.append(m)`,
    late_address: `document.body.innerHTML = '<a>${BLOCK}</a>'; for (const type of ['click', 'auxclick']) addEventListener(type, () => { document.querySelector('a').href = U }, true)`,
    form: `document.body.innerHTML = '<form target=_blank action="' + U + '"><button style="height:60px;width:300px">x</button></form>'`,
    replaced_methods: `WeakSet.prototype.has = () => true; Element.prototype.getAttribute = () => null; Event.prototype.composedPath = () => []; Event.prototype.preventDefault = () => {}; Object.defineProperty(Element, Symbol.hasInstance, {value: () => false}); document.body.innerHTML = '<a href="' + U + '">${BLOCK}</a>'`,
  };
})()
