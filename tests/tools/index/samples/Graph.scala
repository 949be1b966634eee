package example

trait Node {
  def name: String
}

case class Leaf(name: String) extends Node

class Graph(nodes: List[Node]) {
  private val index = nodes.map(node => node.name -> node).toMap

  def find(name: String): Option[Node] = index.get(name)

  def size: Int = {
    nodes.length
  }
}

object Graph {
  def of(names: String*): Graph = new Graph(names.map(Leaf(_)).toList)
}
