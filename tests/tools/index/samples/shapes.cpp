// Shapes and what can be asked of them.
#include <memory>
#include <string>
#include <vector>

#define SHAPES_VERSION 3

namespace shapes {

enum class Colour { Red, Green };

struct Point {
    double x;
    double y;
};

/// Anything with an area.
class Shape {
public:
    explicit Shape(std::string name) : name_(std::move(name)) {}
    virtual ~Shape() {}
    virtual double area() const { return 0; }
    const std::string &name() const { return name_; }
    bool operator<(const Shape &other) const { return area() < other.area(); }

private:
    std::string name_;
};

class Circle : public Shape {
public:
    Circle(Point centre, double radius);
    double area() const override;

private:
    Point centre_;
    double radius_;
};

using ShapeList = std::vector<std::unique_ptr<Shape>>;

template <typename T>
T largest(const std::vector<T> &all)
{
    T best = all.front();
    for (const T &one : all)
        if (best < one)
            best = one;
    return best;
}

Circle::Circle(Point centre, double radius) : Shape("circle"), centre_(centre), radius_(radius) {}

double Circle::area() const
{
    return 3.14159 * radius_ * radius_;
}

static int made = 0;

}  // namespace shapes

int main()
{
    shapes::Circle circle({0, 0}, 1);
    return circle.area() > 3 ? 0 : 1;
}
